/* The order matters. Tables come first, so that no call finds a row of the context. Then comes the core, which waits
   for nothing any more. The entry is last, since its handle may be another context's from then on. */
#include "hooks/context_end.h"

#include "check/check_run.h"
#include "check/guard.h"
#include "check/state.h"
#include "process/process.h"
#include "process/stand_ins.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/events.h"
#include "track/graph_blocks.h"
#include "track/pool_streams.h"
#include "track/streams.h"

/* One thread gets past the claim; the others return when the announcement is complete. The core may have been made
   after the call began, so it is asked for again. Its context entry goes last but one, our own entry last. */
void sg_context_gone(struct sg_core *core, CUcontext context, uint64_t id)
{
    struct sg_context_info was = {0};
    if (!sg_contexts_claim_end(context, id, &was))
        return;
    sg_streams_context_gone(context);
    sg_events_context_gone(context);
    sg_captures_context_gone(context);
    sg_graphs_context_gone(context);
    sg_pool_streams_context_gone(context);
    if (sg_check_on())
        sg_check_context_gone(context);
    if (atomic_load_explicit(&sg_stand_ins_any, memory_order_acquire))
        sg_guard_context_gone(context);
    struct sg_core *now = core ? core : sg_process_core_made(); /* made since then, perhaps with this context */
    sg_process_recover();
    if (now)
        sg_streams_host_observed_all(now); /* the driver has waited for what it was given */
    if (was.context && now && !was.green)
        sg_core_context_gone(now, was.device, context);
    if (sg_contexts_forget(context) && core) /* plain memory ends with its context: others may want it */
        (void)sg_core_trim(core, was.device, 0);
}
