/* Frees are made by the thread whose call ended the last capture. */
#include "hooks/capture_end.h"

#include "process/process.h"
#include "track/captures.h"
#include "track/graph_blocks.h"

/* Not while this thread is inside: the call that it is in frees what is due itself. */
void sg_capture_run_deferred(void)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    sg_captures_run_deferred(core);
    sg_leave();
}

void sg_capture_ended(CUstream stream, bool per_thread)
{
    if (!sg_captures_end(stream, per_thread))
        return;
    sg_graphs_forget_spares();
    sg_capture_run_deferred();
}
