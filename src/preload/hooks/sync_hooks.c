/* Queries and waits of the program for its own streams and contexts: their success completes work in the core. Those
   for events are in event_hooks.c.

   The clock is read before the driver is asked, because the stream may get more work between the answer and a later
   look. For example, stream 1 is at step 9; the program waits, and another thread gives it step 10 meanwhile. Complete
   are steps 1 to 9. */
#include <stddef.h>

#include "check/check_run.h"
#include "check/faults.h"
#include "check/guard.h"
#include "serve/deferred_frees.h"
#include "track/contexts.h"
#include "process/hooks.h"
#include "process/process.h"
#include "services/outside_trace.h"
#include "track/streams.h"

/* The order that the host has observed once the driver says that a stream has no work left: read before the driver is
   asked. */
struct observation {
    struct sg_tracked_stream tracked;
    struct sg_vector_clock clock;
    uint64_t done; /* the stream's own work is complete up to here */
    bool completes; /* false: nothing counts as complete by it */
};

/* Reads what a success of the driver's answer will mean. False: the answer will say nothing, because order is not
   followed or the stream was never given work. */
static bool observation_of(CUstream stream, bool per_thread, struct observation *ret)
{
    struct sg_core *core = sg_following() && !sg_streams_untracked() ? sg_enter() : NULL;
    if (!core)
        return false;
    /* The legacy stream covers the blocking ones too, even where it was never given work. */
    bool legacy = sg_stream_named(stream, per_thread) == CU_STREAM_LEGACY;
    bool known = (legacy ? sg_streams_track : sg_streams_find)(core, stream, per_thread, &ret->tracked);
    if (known)
        sg_core_idle_clock(core, ret->tracked.device, ret->tracked.slot, &ret->clock, &ret->done);
    ret->completes = sg_streams_idle_completes();
    sg_leave();
    return known;
}

/* The host may pass on the order that it has observed, whether the work counts as complete or not. */
static void note_observation(const struct observation *observation)
{
    const struct sg_tracked_stream *tracked = &observation->tracked;
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    struct sg_vector_clock done = observation->clock;
    done.at[tracked->slot] = observation->done;
    if (!observation->completes || observation->done < observation->clock.at[tracked->slot])
        sg_core_host_observed(core, tracked->device, &observation->clock);
    if (observation->completes)
        sg_core_completed(core, tracked->device, &done);
    if (sg_streams_is_untracked_order(tracked))
        sg_streams_host_observed_all(core);
    sg_leave();
}

/* After a query or a wait: pages of guarded blocks may go, so that a use after it finds none. Samples that `check` has read are
   compared. */
static void sync_ended(CUresult result, bool waited, const char *call)
{
    sg_fault_seen(result, call);
    if (result != CUDA_SUCCESS)
        return;
    sg_guard_polls(SG_GUARD_MOMENT_NS);
    sg_check_polls(waited);
}

/* A query of a stream or a wait for it, by `real`. Success completes the stream's work up to the clock that was read
   before. */
static CUresult stream_query(CUresult (*real)(CUstream), CUstream stream, bool per_thread, bool waits, const char *call)
{
    struct observation observation;
    bool known = observation_of(stream, per_thread, &observation);
    CUresult result = real(stream);
    sync_ended(result, waits, call);
    if (known && result == CUDA_SUCCESS)
        note_observation(&observation);
    if (result == CUDA_SUCCESS)
        sg_outside_waited();
    return result;
}

CUresult cuStreamQuery(CUstream stream)
{
    return stream_query(sg_real()->cuStreamQuery, stream, false, /* waits */ false, "cuStreamQuery");
}

CUresult cuStreamQuery_ptsz(CUstream stream)
{
    return stream_query(sg_real()->cuStreamQuery_ptsz, stream, true, /* waits */ false, "cuStreamQuery");
}

CUresult cuStreamSynchronize(CUstream stream)
{
    return stream_query(sg_real()->cuStreamSynchronize, stream, false, /* waits */ true, "cuStreamSynchronize");
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    return stream_query(sg_real()->cuStreamSynchronize_ptsz, stream, true, /* waits */ true, "cuStreamSynchronize");
}

/* True if a wait for the context covers all streams that have a slot of its device. Streams of another device may have
   one too. */
static bool stands_for_all(CUcontext context)
{
    return !sg_contexts_devices() && sg_contexts_stands_for_all(context);
}

/* A primary context stands for the green ones too, but not for others of its device. */
static bool clock_of_context(CUcontext context, int *ret_device, struct sg_vector_clock *ret_clock)
{
    bool known = context && sg_following() && !sg_streams_untracked() && sg_contexts_device(context, ret_device);
    struct sg_core *core = known ? sg_enter() : NULL;
    if (!core)
        return false;
    bool all = stands_for_all(context);
    sg_core_context_clock(core, *ret_device, all ? NULL : context, ret_clock);
    if (all && !stands_for_all(context)) /* another thread has made one meanwhile */
        sg_core_context_clock(core, *ret_device, context, ret_clock);
    if (sg_contexts_devices())
        ret_clock->at[0] = 0; /* what waits for all work waits for other devices' too */
    sg_leave();
    return true;
}

/* Memory that was freed after all work gets its fence before the program waits for that work. When the wait is over,
   the fence has passed, and the memory is free as it is natively. Where streams are followed, the wait itself
   completes it. */
static void mark_first(void)
{
    if (!sg_following())
        sg_memory_fence(/* capture */ false);
}

/* The streams of a green context are followed as the primary one's: which of them it has is not known. */
static void context_completed(CUcontext context, int device, const struct sg_vector_clock *clock)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    sg_core_completed(core, device, clock);
    if (sg_streams_any_untracked_order() || sg_contexts_green(context))
        sg_streams_host_observed_all(core);
    sg_leave();
}

/* A wait for the current context. The clocks of its streams are read before, so that what others queue meanwhile does
   not count as complete. */
CUresult cuCtxSynchronize(void)
{
    CUcontext context = NULL;
    int device;
    struct sg_vector_clock clock;
    mark_first();
    const struct sg_driver *driver = sg_following() ? sg_process_driver() : NULL;
    if (driver && driver->ctx_get_current(&context) != CUDA_SUCCESS)
        context = NULL;
    bool known = clock_of_context(context, &device, &clock);
    CUresult result = sg_real()->cuCtxSynchronize();
    sync_ended(result, /* waited */ true, "cuCtxSynchronize");
    if (known && result == CUDA_SUCCESS)
        context_completed(context, device, &clock);
    if (result == CUDA_SUCCESS)
        sg_outside_waited();
    return result;
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
    int device;
    struct sg_vector_clock clock;
    mark_first();
    bool known = clock_of_context(context, &device, &clock);
    CUresult result = sg_real()->cuCtxSynchronize_v2(context);
    sync_ended(result, /* waited */ true, "cuCtxSynchronize");
    if (known && result == CUDA_SUCCESS)
        context_completed(context, device, &clock);
    if (result == CUDA_SUCCESS)
        sg_outside_waited();
    return result;
}
