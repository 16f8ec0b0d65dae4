#include "track/deferred_frees.h"

#include "process/process.h"
#include "track/captures.h"
#include "track/graph_blocks.h"

void sg_memory_fence(void)
{
    struct sg_core *core = sg_captures_active() ? NULL : sg_enter();
    if (!core)
        return;
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        sg_core_poll(core, device);
    sg_leave();
}

void sg_memory_run_deferred(struct sg_core *core)
{
    if (!sg_memory_has_deferred() || sg_captures_active())
        return;
    sg_captures_run_deferred(core);
    sg_graphs_run_deferred(core);
}
