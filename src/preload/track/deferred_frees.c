#include "track/deferred_frees.h"

#include "process/process.h"
#include "track/captures.h"
#include "track/context_wait.h"
#include "track/graph_blocks.h"

void sg_memory_fence(void)
{
    struct sg_core *core = sg_captures_active() ? NULL : sg_enter();
    if (!core)
        return;
    sg_memory_settle(core);
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

void sg_memory_settle(struct sg_core *core)
{
    if (!sg_captures_active())
        sg_graphs_await_destroyed();
    sg_memory_run_deferred(core);
}

bool sg_memory_settle_launches(struct sg_core *core)
{
    const struct sg_driver *driver = sg_process_driver();
    CUcontext current;
    if (!sg_graphs_retain_freed() || sg_captures_active() || driver->ctx_get_current(&current) != CUDA_SUCCESS ||
        !current || sg_context_wait(current) != CUDA_SUCCESS)
        return false;
    sg_memory_settle(core);
    return true;
}
