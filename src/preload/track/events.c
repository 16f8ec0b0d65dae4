#include "track/events.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "track/captures.h"
#include "track/contexts.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "track/streams.h"
#include "track/graph_order.h"
#include "base/wrap.h"

enum { EVENTS_MAX = 4096, BUCKETS = 2 * EVENTS_MAX };

enum state {
    BLANK,   /* recorded nowhere yet */
    KNOWN,   /* `clock` is what comes before it */
    UNKNOWN, /* recorded, but nobody knows what comes before it */
    UNTRUSTED, /* the same until it is destroyed */
    CAPTURED /* recorded in a capture: waiting for it makes a stream join that */
};

/* Events that were recorded since order is followed. A full table only loses precision. But if an untrusted event
   could not be stored, every event missing from the table is untrusted. Guarded by SG_LOCK_EVENTS. */
static struct {
    struct event {
        CUevent handle;
        CUcontext context;  /* of its stream, NULL if not known */
        enum state state;
        bool untracked_order; /* KNOWN, and what comes before it may be more than `clock` */
        bool mixed;         /* records overlapped: nobody knows which was the last */
        uint32_t generation, under_way;
        int device;
        struct sg_vector_clock clock;
    } list[EVENTS_MAX];
    uint16_t bucket[BUCKETS]; /* index + 1 */
    uint16_t next_free[EVENTS_MAX]; /* of entries that were used and given back; index + 1 */
    int used, first_free;
    bool full; /* an event could not be kept */
    atomic_bool early; /* one was tainted before order was followed */
    atomic_bool missed; /* a tainted one could not be kept */
} events;

static size_t home(CUevent handle)
{
    return (size_t)(sg_hash((uintptr_t)handle) >> 40) % BUCKETS;
}

static size_t event_bucket_locked(CUevent handle)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_EVENTS);
    size_t at = home(handle);
    while (events.bucket[at] && events.list[events.bucket[at] - 1].handle != handle)
        at = (at + 1) % BUCKETS;
    return at;
}

static struct event *event_find_locked(CUevent handle)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_EVENTS);
    uint16_t index = events.bucket[event_bucket_locked(handle)];
    return index ? &events.list[index - 1] : NULL;
}

static struct event *event_find_or_make_locked(CUevent handle)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_EVENTS);
    size_t at = event_bucket_locked(handle);
    if (events.bucket[at])
        return &events.list[events.bucket[at] - 1];
    int index = events.first_free;
    if (index)
        events.first_free = events.next_free[index - 1];
    else if (events.used < EVENTS_MAX)
        index = ++events.used;
    if (!index) {
        events.full = true;
        return NULL;
    }
    events.bucket[at] = (uint16_t)index;
    struct event *event = &events.list[index - 1];
    uint32_t generation = event->generation + 1;
    enum state state = atomic_load_explicit(&events.missed, memory_order_relaxed) ? UNTRUSTED : BLANK;
    *event = (struct event){.handle = handle, .state = state, .generation = generation};
    return event;
}

static void event_drop_locked(CUevent handle)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_EVENTS);
    size_t hole = event_bucket_locked(handle), at = hole;
    int index = events.bucket[hole];
    if (!index)
        return;
    events.list[index - 1].generation++;
    events.list[index - 1].handle = NULL;
    events.next_free[index - 1] = (uint16_t)events.first_free;
    events.first_free = index;
    /* What comes after it in its chain moves up, unless it lies before its own home then. */
    for (at = (at + 1) % BUCKETS; events.bucket[at]; at = (at + 1) % BUCKETS) {
        size_t from = home(events.list[events.bucket[at] - 1].handle);
        if (sg_steps_round(from, at, BUCKETS) >= sg_steps_round(hole, at, BUCKETS)) {
            events.bucket[hole] = events.bucket[at];
            hole = at;
        }
    }
    events.bucket[hole] = 0;
}

/* Also before order is followed: who records it by then may do so again at any time. */
void sg_events_distrust(CUevent handle)
{
    if (!handle)
        return;
    if (!sg_following())
        atomic_store(&events.early, true);
    sg_process_lock(SG_LOCK_EVENTS);
    struct event *event = event_find_or_make_locked(handle);
    if (event) {
        event->generation++;
        event->state = UNTRUSTED;
    } else {
        atomic_store(&events.missed, true);
    }
    sg_process_unlock(SG_LOCK_EVENTS);
}

static void forget(CUevent handle)
{
    if (!handle || (!sg_following() && !atomic_load_explicit(&events.early, memory_order_relaxed)))
        return;
    sg_process_lock(SG_LOCK_EVENTS);
    event_drop_locked(handle);
    sg_process_unlock(SG_LOCK_EVENTS);
}

/* A new one. */
static void enter(CUevent handle)
{
    sg_process_lock(SG_LOCK_EVENTS);
    struct event *event = event_find_or_make_locked(handle);
    if (event)
        event->state = BLANK;
    sg_process_unlock(SG_LOCK_EVENTS);
}

/* Recorded where no stream's clock says what comes before it. */
static void unknow(CUevent handle)
{
    if (!sg_following() || !handle)
        return;
    sg_process_lock(SG_LOCK_EVENTS);
    struct event *event = event_find_or_make_locked(handle);
    if (event) {
        event->generation++;
        event->state = event->state == UNTRUSTED ? UNTRUSTED : UNKNOWN;
    }
    sg_process_unlock(SG_LOCK_EVENTS);
}

void sg_events_context_gone(CUcontext context)
{
    sg_process_lock(SG_LOCK_EVENTS);
    for (int i = 0; i < events.used; i++) {
        if (events.list[i].handle && events.list[i].context == context)
            event_drop_locked(events.list[i].handle);
    }
    sg_process_unlock(SG_LOCK_EVENTS);
}

static CUresult created(CUresult result, const CUevent *ret, bool tainted)
{
    if (result == CUDA_SUCCESS && ret) {
        forget(*ret); /* an event of the same handle whose end was not seen */
        if (tainted)
            sg_events_distrust(*ret);
        else if (sg_follow_late() || atomic_load_explicit(&events.missed, memory_order_relaxed))
            enter(*ret); /* those that aren't in the table may have been recorded, or tainted, before */
    }
    return result;
}

CUresult cuEventCreate(CUevent *ret, unsigned flags)
{
    return created(sg_real()->cuEventCreate(ret, flags), ret, flags & CU_EVENT_INTERPROCESS);
}

CUresult cuEventCreateFromEGLSync(CUevent *ret, void *sync, unsigned flags)
{
    return created(sg_real()->cuEventCreateFromEGLSync(ret, sync, flags), ret, true);
}

CUresult cuIpcOpenEventHandle(CUevent *ret, CUipcEventHandle handle)
{
    return created(sg_real()->cuIpcOpenEventHandle(ret, handle), ret, true);
}

CUresult cuEventDestroy(CUevent event)
{
    forget(event);
    return sg_real()->cuEventDestroy(event);
}

CUresult cuEventDestroy_v2(CUevent event)
{
    forget(event);
    return sg_real()->cuEventDestroy_v2(event);
}

/* From before the driver is asked to record until it has answered: meanwhile the event gives no knowledge. */
struct recording {
    bool early;    /* nobody has memory yet that order would matter to */
    bool followed; /* the place and the clock are known */
    bool untracked_order;
    bool shared; /* other processes may wait for it unseen, and say so */
    struct sg_tracked_stream tracked;
    CUcontext context;
    struct sg_vector_clock clock;
};

static void begin_record(CUevent handle, CUstream stream, bool per_thread, struct recording *ret)
{
    *ret = (struct recording){.early = !sg_streams_any_served()};
    sg_process_lock(SG_LOCK_EVENTS);
    struct event *event = event_find_or_make_locked(handle);
    if (event) {
        event->generation++;
        event->under_way++;
        event->mixed |= event->under_way > 1;
        ret->shared = event->state == UNTRUSTED;
        event->state = event->state == UNTRUSTED ? UNTRUSTED : UNKNOWN;
    } else {
        ret->shared = atomic_load_explicit(&events.missed, memory_order_relaxed);
    }
    sg_process_unlock(SG_LOCK_EVENTS);
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
    }
    sg_leave();
}

static void end_record(CUevent handle, bool captured, const struct recording *recording)
{
    sg_process_lock(SG_LOCK_EVENTS);
    struct event *event = event_find_locked(handle);
    if (event) {
        bool mixed = event->mixed;
        if (event->under_way && --event->under_way == 0)
            event->mixed = false;
        if (event->state == UNTRUSTED) {
            /* stays so */
        } else if (captured) {
            event->state = CAPTURED;
        } else if (recording->early) {
            event->state = BLANK;
        } else if (mixed || !recording->followed) {
            event->state = UNKNOWN;
        } else {
            event->state = KNOWN;
            event->untracked_order = recording->untracked_order;
            event->device = recording->tracked.device;
            event->context = recording->context;
            event->clock = recording->clock;
        }
    }
    sg_process_unlock(SG_LOCK_EVENTS);
}

/* The driver refused to record: it may have recorded nothing, or ruined a capture. */
static void fail_record(CUevent handle)
{
    static const struct recording none;
    end_record(handle, false, &none);
}

static CUresult recorded(CUresult result, CUevent event, CUstream stream, bool per_thread, struct recording *recording)
{
    if (result != CUDA_SUCCESS)
        fail_record(event);
    else
        end_record(event, sg_captures_capturing(stream, per_thread), recording);
    if (recording->shared)
        sg_streams_host_may_observe(stream, per_thread);
    return result;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    struct recording recording;
    if (!sg_following() || sg_thread_inside())
        return sg_real()->cuEventRecord(event, stream);
    begin_record(event, stream, false, &recording);
    return recorded(sg_real()->cuEventRecord(event, stream), event, stream, false, &recording);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    struct recording recording;
    if (!sg_following() || sg_thread_inside())
        return sg_real()->cuEventRecord_ptsz(event, stream);
    begin_record(event, stream, true, &recording);
    return recorded(sg_real()->cuEventRecord_ptsz(event, stream), event, stream, true, &recording);
}

/* An external record in a capture is a node of its graph. */
static void distrust_external(CUevent event, unsigned flags)
{
    if (flags & CU_EVENT_RECORD_EXTERNAL && sg_captures_active())
        sg_events_distrust(event);
}

static CUresult record_with_flags(CUevent event, CUstream stream, unsigned flags, bool per_thread,
    __typeof__(&cuEventRecordWithFlags) real)
{
    struct recording recording;
    distrust_external(event, flags);
    if (!sg_following() || sg_thread_inside())
        return real(event, stream, flags);
    begin_record(event, stream, per_thread, &recording);
    return recorded(real(event, stream, flags), event, stream, per_thread, &recording);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    return record_with_flags(event, stream, flags, false, sg_real()->cuEventRecordWithFlags);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags)
{
    return record_with_flags(event, stream, flags, true, sg_real()->cuEventRecordWithFlags_ptsz);
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    unknow(event);
    return sg_real()->cuCtxRecordEvent(context, event);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    unknow(event);
    return sg_real()->cuGreenCtxRecordEvent(green, event);
}

/* What was known of an event before the driver was asked to wait for it. */
struct knowledge {
    enum state state;
    bool untracked_order;
    int device;
    uint32_t generation;
    struct sg_vector_clock clock;
};

static void know(CUevent handle, struct knowledge *ret)
{
    sg_process_lock(SG_LOCK_EVENTS);
    const struct event *event = event_find_locked(handle);
    if (event) {
        ret->state = event->state;
        ret->untracked_order = event->untracked_order;
        ret->device = event->device;
        ret->generation = event->generation;
        if (event->state == KNOWN)
            ret->clock = event->clock;
    } else {
        ret->state = events.full || sg_follow_late() ? UNKNOWN : BLANK;
        ret->generation = 0;
    }
    sg_process_unlock(SG_LOCK_EVENTS);
}

/* It was neither recorded anew nor destroyed since. */
static bool still(CUevent handle, const struct knowledge *knowledge)
{
    sg_process_lock(SG_LOCK_EVENTS);
    const struct event *event = event_find_locked(handle);
    bool same = event ? event->generation == knowledge->generation : knowledge->generation == 0;
    sg_process_unlock(SG_LOCK_EVENTS);
    return same;
}

static bool is_trusted(CUevent event, const struct knowledge *knowledge)
{
    return knowledge->state == KNOWN && still(event, knowledge) && !sg_streams_untracked();
}

/* Untracked work is now ordered after the event. Whoever waits for that work, or the work itself, may show the host
   that the event has completed. */
static void show_host(struct sg_core *core, CUevent event, const struct knowledge *knowledge)
{
    bool known = is_trusted(event, knowledge);
    if (known)
        sg_core_host_observed(core, knowledge->device, &knowledge->clock);
    if (!known || knowledge->untracked_order)
        sg_streams_host_observed_all(core);
}

/* A stream waits for an event, by the driver's word. If the event is untrusted, so is what the stream may have got
   by it. A stream without a slot passes its order on without notice. So does a blocking one to others of its own
   device, whose slots know nothing of the event's device. */
static void waited(CUevent event, CUstream stream, bool per_thread, const struct knowledge *knowledge)
{
    struct sg_tracked_stream tracked;
    struct sg_core *core = knowledge->state != BLANK ? sg_enter() : NULL;
    if (!core)
        return;
    bool followed = sg_streams_track(core, stream, per_thread, &tracked);
    bool known = followed && knowledge->device == tracked.device && is_trusted(event, knowledge);
    if (known)
        sg_core_ordered_after(core, tracked.device, tracked.slot, &knowledge->clock);
    else if (!followed || sg_contexts_devices())
        show_host(core, event, knowledge);
    if (followed && (!known || knowledge->untracked_order))
        sg_streams_untracked_order(core, &tracked);
    sg_leave();
}

static CUresult wait(CUresult (*real)(CUstream, CUevent, unsigned), CUstream stream, CUevent event, unsigned flags,
    bool per_thread)
{
    struct knowledge knowledge = {.state = UNKNOWN};
    bool capturing = sg_captures_active();
    if (capturing && flags & CU_EVENT_WAIT_EXTERNAL)
        sg_graph_order_waits();
    if (!sg_following() || sg_thread_inside())
        return real(stream, event, flags);
    know(event, &knowledge);
    if (capturing)
        sg_captures_joining();
    CUresult result = real(stream, event, flags);
    if (capturing)
        sg_captures_joined();
    /* What a capturing stream waits for is waited for by its graph, if ever. */
    if (result == CUDA_SUCCESS && knowledge.state != CAPTURED && !sg_captures_capturing(stream, per_thread))
        waited(event, stream, per_thread, &knowledge);
    return result;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    return wait(sg_real()->cuStreamWaitEvent, stream, event, flags, false);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags)
{
    return wait(sg_real()->cuStreamWaitEvent_ptsz, stream, event, flags, true);
}

/* A whole context waits: each of its streams may have seen what comes before the event, also one that is followed, or
   made, only later. */
static CUresult context_waited(CUresult result, CUcontext context, CUevent event, const struct knowledge *knowledge)
{
    if (result == CUDA_SUCCESS)
        sg_streams_context_waited();
    struct sg_core *core = result == CUDA_SUCCESS && sg_following() ? sg_enter() : NULL;
    if (core) {
        sg_streams_untracked_order_of(core, context);
        if (knowledge->state != BLANK)
            show_host(core, event, knowledge);
        sg_leave();
    }
    return result;
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
    struct knowledge knowledge = {.state = UNKNOWN};
    if (sg_following())
        know(event, &knowledge);
    return context_waited(sg_real()->cuCtxWaitEvent(context, event), context, event, &knowledge);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    struct knowledge knowledge = {.state = UNKNOWN};
    if (sg_following())
        know(event, &knowledge);
    return context_waited(sg_real()->cuGreenCtxWaitEvent(green, event), sg_contexts_of_green(green), event, &knowledge);
}

/* The event is complete, by the driver's word. */
static void completed(CUevent event, const struct knowledge *knowledge)
{
    struct sg_core *core = knowledge->state != BLANK ? sg_enter() : NULL;
    if (!core)
        return;
    bool known = is_trusted(event, knowledge);
    if (known)
        sg_core_completed(core, knowledge->device, &knowledge->clock);
    if (!known || knowledge->untracked_order)
        sg_streams_host_observed_all(core);
    sg_leave();
}

static CUresult query(CUresult (*real)(CUevent), CUevent event)
{
    struct knowledge knowledge;
    if (!sg_following() || sg_thread_inside())
        return real(event);
    know(event, &knowledge);
    CUresult result = real(event);
    if (result == CUDA_SUCCESS)
        completed(event, &knowledge);
    return result;
}

CUresult cuEventQuery(CUevent event)
{
    return query(sg_real()->cuEventQuery, event);
}

CUresult cuEventSynchronize(CUevent event)
{
    CUresult result = query(sg_real()->cuEventSynchronize, event);
    if (result == CUDA_SUCCESS)
        sg_upward_calls.waited();
    return result;
}

/* There is no time between two events before both are complete. */
static CUresult measure(CUresult (*real)(float *, CUevent, CUevent), float *ms, CUevent start, CUevent end)
{
    struct knowledge of_start, of_end;
    if (!sg_following() || sg_thread_inside())
        return real(ms, start, end);
    know(start, &of_start);
    know(end, &of_end);
    CUresult result = real(ms, start, end);
    if (result == CUDA_SUCCESS) {
        completed(start, &of_start);
        completed(end, &of_end);
    }
    return result;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    return measure(sg_real()->cuEventElapsedTime, ms, start, end);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return measure(sg_real()->cuEventElapsedTime_v2, ms, start, end);
}
