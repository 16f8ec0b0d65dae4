/* Events: made, recorded, waited for, asked about.

   Each hook reads the table's knowledge, asks the driver, and uses the knowledge only if it is still that of the event.
   Another thread may record or destroy the event in between. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/check_run.h"
#include "check/faults.h"
#include "check/guard.h"
#include "process/hooks.h"
#include "process/process.h"
#include "services/outside_trace.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/events.h"
#include "track/graph_order.h"
#include "track/streams.h"

/* After the driver has made an event. `tainted`: others may record it unseen, as they may with interprocess events. */
static CUresult event_created(CUresult result, const CUevent *ret, bool tainted)
{
    if (result == CUDA_SUCCESS && ret) {
        sg_events_forget(*ret); /* an event of the same handle whose end was not seen */
        if (tainted)
            sg_events_distrust(*ret);
        else if (sg_follow_late() || sg_events_any_missed())
            sg_events_enter(*ret); /* those that aren't in the table may have been recorded, or tainted, before */
    }
    return result;
}

CUresult cuEventCreate(CUevent *ret, unsigned flags)
{
    return event_created(sg_real()->cuEventCreate(ret, flags), ret, flags & CU_EVENT_INTERPROCESS);
}

CUresult cuEventCreateFromEGLSync(CUevent *ret, void *sync, unsigned flags)
{
    return event_created(sg_real()->cuEventCreateFromEGLSync(ret, sync, flags), ret, true);
}

CUresult cuIpcOpenEventHandle(CUevent *ret, CUipcEventHandle handle)
{
    return event_created(sg_real()->cuIpcOpenEventHandle(ret, handle), ret, true);
}

CUresult cuEventDestroy(CUevent event)
{
    sg_events_forget(event);
    return sg_real()->cuEventDestroy(event);
}

CUresult cuEventDestroy_v2(CUevent event)
{
    sg_events_forget(event);
    return sg_real()->cuEventDestroy_v2(event);
}

/* Before the driver records: the event gives no knowledge from here on, and the stream's clock is read. The clock is
   read before the driver's call, so steps that other threads give the stream meanwhile are not counted in. */
static void event_begin_record(CUevent handle, CUstream stream, bool per_thread, struct sg_event_recording *ret)
{
    *ret = (struct sg_event_recording){.early = !sg_streams_any_served(), .shared = sg_events_begin_record(handle)};
    if (ret->shared)
        sg_streams_host_may_observe(stream, per_thread);
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    ret->followed = !sg_captures_capturing(stream, per_thread) &&
                    sg_streams_track(core, stream, per_thread, &ret->tracked);
    if (ret->followed) {
        sg_core_clock(core, ret->tracked.device, ret->tracked.slot, &ret->clock);
        ret->untracked_order = sg_streams_is_untracked_order(&ret->tracked);
        ret->context = sg_streams_context(&ret->tracked);
    } else {
        sg_streams_shown_all(core);
    }
    sg_leave();
}

/* The driver refused to record: it may have recorded nothing, or ruined a capture. */
static void event_fail_record(CUevent handle)
{
    static const struct sg_event_recording none;
    sg_events_end_record(handle, false, &none);
}

/* After the driver's answer. A stream that is being captured now has recorded a node and no event. */
static CUresult event_recorded(CUresult result, CUevent event, CUstream stream, bool per_thread,
    struct sg_event_recording *recording)
{
    if (result != CUDA_SUCCESS)
        event_fail_record(event);
    else
        sg_events_end_record(event, sg_captures_capturing(stream, per_thread), recording);
    if (recording->shared)
        sg_streams_host_may_observe(stream, per_thread);
    return result;
}

/* Nothing is noted before order is followed: an event that was recorded then has no entry, which know() takes for
   unknown. */
CUresult cuEventRecord(CUevent event, CUstream stream)
{
    struct sg_event_recording recording;
    if (!sg_following() || sg_thread_inside())
        return sg_real()->cuEventRecord(event, stream);
    event_begin_record(event, stream, false, &recording);
    return event_recorded(sg_real()->cuEventRecord(event, stream), event, stream, false, &recording);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    struct sg_event_recording recording;
    if (!sg_following() || sg_thread_inside())
        return sg_real()->cuEventRecord_ptsz(event, stream);
    event_begin_record(event, stream, true, &recording);
    return event_recorded(sg_real()->cuEventRecord_ptsz(event, stream), event, stream, true, &recording);
}

/* An external record in a capture is a node of its graph. */
static void event_distrust_external(CUevent event, unsigned flags)
{
    if (flags & CU_EVENT_RECORD_EXTERNAL && sg_captures_active())
        sg_events_distrust(event);
}

/* Records by the call with flags, `real`, in one of its two forms. */
static CUresult event_record_with_flags(CUevent event, CUstream stream, unsigned flags, bool per_thread,
    __typeof__(&cuEventRecordWithFlags) real)
{
    struct sg_event_recording recording;
    event_distrust_external(event, flags);
    if (!sg_following() || sg_thread_inside())
        return real(event, stream, flags);
    event_begin_record(event, stream, per_thread, &recording);
    return event_recorded(real(event, stream, flags), event, stream, per_thread, &recording);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    return event_record_with_flags(event, stream, flags, false, sg_real()->cuEventRecordWithFlags);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags)
{
    return event_record_with_flags(event, stream, flags, true, sg_real()->cuEventRecordWithFlags_ptsz);
}

/* Before an event is recorded over a context: it shows the work of all its streams. */
static void event_shows_context(void)
{
    struct sg_core *core = sg_following() ? sg_enter() : NULL;
    if (core) {
        sg_streams_shown_all(core);
        sg_leave();
    }
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    sg_events_unknow(event);
    event_shows_context();
    return sg_real()->cuCtxRecordEvent(context, event);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    sg_events_unknow(event);
    event_shows_context();
    return sg_real()->cuGreenCtxRecordEvent(green, event);
}

static bool event_is_trusted(CUevent event, const struct sg_event_knowledge *knowledge)
{
    return knowledge->state == SG_EVENT_KNOWN && sg_events_is_still(event, knowledge) && !sg_streams_untracked();
}

/* Untracked work is now ordered after the event. Whoever waits for that work, or the work itself, may show the host
   that the event has completed. */
static void event_show_host(struct sg_core *core, CUevent event, const struct sg_event_knowledge *knowledge)
{
    bool known = event_is_trusted(event, knowledge);
    if (known)
        sg_core_host_observed(core, knowledge->device, &knowledge->clock);
    if (!known || knowledge->untracked_order)
        sg_streams_host_observed_all(core);
}

/* A stream waits for an event, by the driver's word. If the event is untrusted, so is what the stream may have got
   by it. A stream without a slot passes its order on without notice. So does a blocking one to others of its own
   device, whose slots know nothing of the event's device. */
static void event_waited(CUevent event, CUstream stream, bool per_thread, const struct sg_event_knowledge *knowledge)
{
    struct sg_tracked_stream tracked;
    struct sg_core *core = knowledge->state != SG_EVENT_BLANK ? sg_enter() : NULL;
    if (!core)
        return;
    bool followed = sg_streams_track(core, stream, per_thread, &tracked);
    bool known = followed && knowledge->device == tracked.device && event_is_trusted(event, knowledge);
    if (known)
        sg_core_ordered_after(core, tracked.device, tracked.slot, &knowledge->clock);
    else if (!followed || sg_contexts_devices())
        event_show_host(core, event, knowledge);
    if (followed && (!known || knowledge->untracked_order))
        sg_streams_untracked_order(core, &tracked);
    sg_leave();
}

/* A stream's wait for an event. During a capture the wait may make the stream join it, so joins are announced around
   the call. For example, stream B waits for an event that was recorded on captured stream A: B is captured from then
   on. */
static CUresult event_wait(CUresult (*real)(CUstream, CUevent, unsigned), CUstream stream, CUevent event,
    unsigned flags, bool per_thread)
{
    struct sg_event_knowledge knowledge = {.state = SG_EVENT_UNKNOWN};
    bool capturing = sg_captures_active();
    if (capturing && flags & CU_EVENT_WAIT_EXTERNAL)
        sg_graph_order_waits();
    if (!sg_following() || sg_thread_inside())
        return real(stream, event, flags);
    sg_events_know(event, &knowledge);
    if (capturing)
        sg_captures_joining();
    CUresult result = real(stream, event, flags);
    if (capturing)
        sg_captures_joined();
    /* A capturing stream waits for nothing itself: its graph does, if ever. */
    if (result == CUDA_SUCCESS && knowledge.state != SG_EVENT_CAPTURED && !sg_captures_capturing(stream, per_thread))
        event_waited(event, stream, per_thread, &knowledge);
    return result;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    return event_wait(sg_real()->cuStreamWaitEvent, stream, event, flags, false);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags)
{
    return event_wait(sg_real()->cuStreamWaitEvent_ptsz, stream, event, flags, true);
}

/* A whole context waits: each of its streams may have seen what comes before the event, also one that is followed, or
   made, only later. */
static CUresult event_context_waited(CUresult result, CUcontext context, CUevent event,
    const struct sg_event_knowledge *knowledge)
{
    if (result == CUDA_SUCCESS)
        sg_streams_context_waited();
    struct sg_core *core = result == CUDA_SUCCESS && sg_following() ? sg_enter() : NULL;
    if (core) {
        sg_streams_untracked_order_of(core, context);
        if (knowledge->state != SG_EVENT_BLANK)
            event_show_host(core, event, knowledge);
        sg_leave();
    }
    return result;
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
    struct sg_event_knowledge knowledge = {.state = SG_EVENT_UNKNOWN};
    if (sg_following())
        sg_events_know(event, &knowledge);
    return event_context_waited(sg_real()->cuCtxWaitEvent(context, event), context, event, &knowledge);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    struct sg_event_knowledge knowledge = {.state = SG_EVENT_UNKNOWN};
    if (sg_following())
        sg_events_know(event, &knowledge);
    return event_context_waited(sg_real()->cuGreenCtxWaitEvent(green, event), sg_contexts_of_green(green), event,
        &knowledge);
}

/* The event is complete, by the driver's word. */
static void event_completed(CUevent event, const struct sg_event_knowledge *knowledge)
{
    struct sg_core *core = knowledge->state != SG_EVENT_BLANK ? sg_enter() : NULL;
    if (!core)
        return;
    bool known = event_is_trusted(event, knowledge);
    if (known)
        sg_core_completed(core, knowledge->device, &knowledge->clock);
    if (!known || knowledge->untracked_order)
        sg_streams_host_observed_all(core);
    sg_leave();
}

/* A query or a wait of the host for an event, by `real`. Success means that all work before the event is complete. */
static CUresult event_query(CUresult (*real)(CUevent), CUevent event)
{
    struct sg_event_knowledge knowledge;
    if (!sg_following() || sg_thread_inside())
        return real(event);
    sg_events_know(event, &knowledge);
    CUresult result = real(event);
    if (result == CUDA_SUCCESS)
        event_completed(event, &knowledge);
    return result;
}

CUresult cuEventQuery(CUevent event)
{
    CUresult result = event_query(sg_real()->cuEventQuery, event);
    sg_fault_seen(result, "cuEventQuery");
    return result;
}

CUresult cuEventSynchronize(CUevent event)
{
    CUresult result = event_query(sg_real()->cuEventSynchronize, event);
    sg_fault_seen(result, "cuEventSynchronize");
    if (result == CUDA_SUCCESS) {
        sg_outside_waited();
        sg_guard_polls(SG_GUARD_MOMENT_NS);
        sg_check_polls(/* all */ true);
    }
    return result;
}

/* There is no time between two events before both are complete. */
static CUresult event_measure(CUresult (*real)(float *, CUevent, CUevent), float *ms, CUevent start, CUevent end)
{
    struct sg_event_knowledge of_start, of_end;
    if (!sg_following() || sg_thread_inside())
        return real(ms, start, end);
    sg_events_know(start, &of_start);
    sg_events_know(end, &of_end);
    CUresult result = real(ms, start, end);
    if (result == CUDA_SUCCESS) {
        event_completed(start, &of_start);
        event_completed(end, &of_end);
    }
    return result;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    return event_measure(sg_real()->cuEventElapsedTime, ms, start, end);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return event_measure(sg_real()->cuEventElapsedTime_v2, ms, start, end);
}
