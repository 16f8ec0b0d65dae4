/* Events. One that several processes share (CU_EVENT_INTERPROCESS) is what its last record was, in whichever process: a
   record of this one is known by its stream and position, as any event's, one of another only by its number. */
#include <stdlib.h>
#include <time.h>

#include "graphs/graph.h"
#include "streams/executor.h"
#include "streams/records.h"

struct CUevent_st {
    struct sim_handle handle;
    CUcontext context;
    unsigned flags, refs; /* the handle, and each record under way */
    CUstream stream;      /* of the last record; NULL before the first. Holds a reference */
    uint64_t position;
    uint64_t time_ns; /* when that was reached */
    struct sim_capture *capture; /* that it was last recorded in; NULL otherwise. Holds a reference */
    struct sim_nodes tips;       /* what it stands for there */
    struct sim_clock clock;      /* of the last record; for the hazard checker */
    struct sim_records *records; /* of an interprocess event; else NULL */
    uint64_t number;             /* of the record that `stream` and `position` are of; 0: none of this process yet */
};

/* What comes before some record of an interprocess event made here. Another process may have waited for it before it
   recorded one, so that whoever waits for a record from elsewhere is taken to come after all of it: the checker, which
   sees one process, reports nothing that is not so. */
static struct sim_clock shown;

/* It is recorded anew: what it stood for in a capture is forgotten. */
static void forget_capture(CUevent event)
{
    if (event->capture)
        sim_capture_unref(event->capture);
    event->capture = NULL;
    sim_nodes_clear(&event->tips);
}

static void unref(CUevent event)
{
    if (--event->refs == 0) {
        forget_capture(event);
        if (event->stream)
            sim_stream_unref(event->stream);
        sim_clock_clear(&event->clock);
        if (event->records)
            sim_records_drop(event->records);
        free(event);
    }
}

static CUresult get(CUevent handle, CUevent *ret)
{
    if (!sim_handle_valid(handle, SIM_KIND_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    *ret = handle;
    return handle->context->alive ? handle->context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Whether the last record is another process's. */
static bool foreign(CUevent event)
{
    return event->records && sim_records_last(event->records) > event->number;
}

static bool complete(CUevent event)
{
    if (foreign(event))
        return sim_records_reached(event->records, sim_records_last(event->records));
    return !event->stream || event->stream->completed >= event->position;
}

/* What comes before the last record. */
static const struct sim_clock *clock_of(CUevent event)
{
    return foreign(event) ? &shown : &event->clock;
}

/* Locked. Of the current context; owns `records`, which may be NULL, on success only. */
static CUresult new_event(CUevent *ret, unsigned flags, struct sim_records *records)
{
    CUevent event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_context_current(&event->context);
    if (result != CUDA_SUCCESS) {
        free(event);
        return result;
    }
    event->flags = flags;
    event->records = records;
    event->refs = 1;
    sim_handle_add(&event->handle, SIM_KIND_EVENT);
    *ret = event;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *handle, unsigned int flags)
{
    SIM_ENTER(cuEventCreate);
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    bool shared = flags & CU_EVENT_INTERPROCESS;
    if (!handle || flags & ~known || (shared && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_records *records = shared ? sim_records_new() : NULL;
    CUresult result = shared && !records ? CUDA_ERROR_OUT_OF_MEMORY : new_event(handle, flags, records);
    if (result != CUDA_SUCCESS && records)
        sim_records_drop(records);
    sim_unlock();
    return result;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    SIM_ENTER_WITH(cuEventDestroy_v2, event);
    sim_lock();
    bool valid = sim_handle_valid(event, SIM_KIND_EVENT);
    if (valid) {
        sim_handle_drop(&event->handle);
        unref(event);
    }
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}

/* A point of an event: what the work of a record reaches, or waits for. */
struct point {
    CUevent event;
    uint64_t number; /* of an interprocess one */
};

static void finish_record(struct sim_work *work)
{
    struct point *point = (struct point *)work->payload;
    CUevent event = point->event;
    if (!work->dropped && event->stream == work->stream && event->position == work->position)
        event->time_ns = sim_now_ns();
    if (event->records)
        sim_records_end(event->records, point->number);
    unref(event);
}

static struct sim_work *new_record(CUevent event)
{
    struct sim_work *work = sim_work_new(sizeof(struct point), NULL, finish_record);
    if (work) {
        if (event->records)
            event->number = sim_records_begin(event->records);
        *(struct point *)work->payload = (struct point){event, event->number};
        event->refs++;
    }
    return work;
}

/* Whether the process that made the record has still to reach it. Needs no lock: the work holds the event. */
static bool held_up(const struct sim_work *work)
{
    const struct point *point = (const struct point *)work->payload;
    return !sim_records_reached(point->event->records, point->number);
}

static void run_wait(struct sim_work *work)
{
    const struct timespec pause = {.tv_nsec = 50000};
    while (held_up(work) && sim_state_now() == SIM_READY)
        nanosleep(&pause, NULL);
}

static void finish_wait(struct sim_work *work)
{
    unref(((struct point *)work->payload)->event);
}

/* Work of a stream that is held up until the event's last record, another process's, is reached. */
static struct sim_work *new_foreign_wait(CUevent event)
{
    struct sim_work *work = sim_work_new(sizeof(struct point), run_wait, finish_wait);
    if (work) {
        *(struct point *)work->payload = (struct point){event, sim_records_last(event->records)};
        event->refs++;
        work->may_wait = true;
        work->blocked = held_up;
    }
    return work;
}

static void recorded(CUevent event, CUstream stream, uint64_t position)
{
    sim_stream_ref(stream);
    if (event->stream)
        sim_stream_unref(event->stream);
    event->stream = stream;
    event->position = position;
    sim_clock_clear(&event->clock);
    if (stream->kind == SIM_STREAM_MARKER)
        sim_order_context(stream->context, &event->clock);
    else
        sim_clock_join(&event->clock, &stream->clock);
    if (event->records)
        sim_clock_join(&shown, &event->clock);
    forget_capture(event);
}

void sim_event_ref(CUevent event)
{
    event->refs++;
}

void sim_event_unref(CUevent event)
{
    unref(event);
}

CUresult sim_event_get(CUevent event)
{
    CUevent found;
    return get(event, &found);
}

static CUresult submit_record(CUevent event, CUstream stream)
{
    struct sim_work *work = new_record(event);
    uint64_t position;
    CUresult result = work ? sim_submit(stream, work, &position) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        recorded(event, stream, position);
    return result;
}

CUresult sim_event_recorded(CUevent event, CUstream stream, uint64_t position)
{
    if (event->records)
        return submit_record(event, stream);
    recorded(event, stream, position);
    event->time_ns = sim_now_ns();
    return CUDA_SUCCESS;
}

CUresult sim_event_wait(CUevent event, CUstream stream)
{
    sim_order_stream_after(stream, clock_of(event));
    if (event->capture || complete(event))
        return CUDA_SUCCESS;
    if (foreign(event)) {
        struct sim_work *work = new_foreign_wait(event);
        return work ? sim_submit(stream, work, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_work *work = sim_work_new(0, NULL, NULL);
    if (work && sim_work_depend(work, event->stream, event->position) == 0)
        return sim_submit(stream, work, NULL);
    if (work)
        sim_work_free(work);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult event_node(CUevent event, CUstream stream, CUgraphNodeType type)
{
    CUgraphNode node;
    event->refs++;
    return sim_capture_step(stream, (struct sim_step){.type = type, .event = event}, &node);
}

/* A record in a capture stands for what the stream has captured so far; an external one is a node. */
static CUresult record_captured(CUevent event, CUstream stream, bool external)
{
    static const struct sim_nodes none;
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external)
        return event_node(event, stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    if (sim_nodes_copy(&event->tips, stream->tips ? stream->tips : &none) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->capture->refs++;
    if (event->capture)
        sim_capture_unref(event->capture);
    event->capture = stream->capture;
    return CUDA_SUCCESS;
}

/* A wait of a capturing stream, or for what was recorded in one. */
static CUresult wait_captured(CUevent event, CUstream stream, bool external)
{
    if (external && sim_capturing(stream))
        return event_node(event, stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    if (event->capture)
        return sim_capture_join(stream, event->capture, &event->tips);
    if (!event->stream && !foreign(event)) /* never recorded: nothing to wait for */
        return CUDA_SUCCESS;
    sim_capture_ruin(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

/* The host may not ask for what was recorded in a capture; nor, unless its thread allows it, for anything beside
   one. */
static CUresult may_ask(CUevent event)
{
    if (!event->capture)
        return sim_capture_forbids();
    if (!event->capture->over)
        sim_capture_ruin(event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

/* The lock is held from the submission until the event says where it was recorded, so that the work cannot be complete
   before that. */
static CUresult record(CUevent handle, CUstream stream, bool external)
{
    sim_lock();
    CUevent event;
    CUstream target;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(stream, &target);
    if (result == CUDA_SUCCESS && sim_context_root(target->context) != sim_context_root(event->context))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = sim_capturing(target) ? record_captured(event, target, external) : submit_record(event, target);
    sim_unlock();
    return result;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    SIM_ENTER_WITH(cuEventRecord, event, stream);
    return record(event, stream, false);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    SIM_ENTER_WITH(cuEventRecordWithFlags, event, stream);
    return flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_INVALID_VALUE
                                                        : record(event, stream, flags & CU_EVENT_RECORD_EXTERNAL);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
    return cuEventRecordWithFlags(event, stream ? stream : CU_STREAM_PER_THREAD, flags);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    return cuEventRecord(event, stream ? stream : CU_STREAM_PER_THREAD);
}

/* All work of a context, and of the green ones that it stands for. An event of any of them will do. */
static CUresult record_context(CUcontext context, CUevent handle)
{
    sim_lock();
    CUevent event;
    CUcontext target;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_context_get(context, &target);
    if (result == CUDA_SUCCESS && sim_context_root(target) != sim_context_root(event->context))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_context(target);
    if (result == CUDA_SUCCESS) {
        struct sim_work *work = new_record(event);
        uint64_t position;
        result = work ? sim_context_point(target, work, &position) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            recorded(event, target->marker, position);
    }
    sim_unlock();
    return result;
}

static CUresult wait_context(CUcontext context, CUevent handle)
{
    sim_lock();
    CUevent event;
    CUcontext target = NULL;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_context_get(context, &target);
    if (result == CUDA_SUCCESS)
        result = event->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : sim_capture_context(target);
    if (result == CUDA_SUCCESS)
        sim_order_context_after(target, clock_of(event));
    if (result == CUDA_SUCCESS && !complete(event)) {
        CUstream stream = event->stream;
        uint64_t position = event->position;
        if (foreign(event)) { /* the marker's work stands for the other process's */
            struct sim_work *work = new_foreign_wait(event);
            stream = target->marker;
            result = work ? sim_submit(stream, work, &position) : CUDA_ERROR_OUT_OF_MEMORY;
        }
        for (CUcontext c = sim.contexts; c && result == CUDA_SUCCESS; c = c->next) {
            if (c->alive && sim_context_covers(target, c) && sim_deps_add(&c->barriers, stream, position) != 0)
                result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    sim_unlock();
    return result;
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    SIM_ENTER(cuCtxRecordEvent);
    return record_context(context, event);
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
    SIM_ENTER(cuCtxWaitEvent);
    return wait_context(context, event);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    SIM_ENTER(cuGreenCtxRecordEvent);
    CUcontext context = sim_green_context(green);
    return context ? record_context(context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    SIM_ENTER(cuGreenCtxWaitEvent);
    CUcontext context = sim_green_context(green);
    return context ? wait_context(context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned int flags)
{
    SIM_ENTER_WITH(cuStreamWaitEvent, stream);
    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUevent event;
    CUstream target;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(stream, &target);
    if (result == CUDA_SUCCESS)
        result = sim_capture_legacy(target);
    if (result == CUDA_SUCCESS && (event->capture || sim_capturing(target))) {
        result = wait_captured(event, target, flags & CU_EVENT_WAIT_EXTERNAL);
    } else if (result == CUDA_SUCCESS) {
        result = sim_event_wait(event, target);
    }
    sim_unlock();
    return result;
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
    return cuStreamWaitEvent(stream ? stream : CU_STREAM_PER_THREAD, event, flags);
}

CUresult cuEventQuery(CUevent handle)
{
    SIM_ENTER_WITH(cuEventQuery, handle);
    sim_lock();
    sim_schedule_step();
    CUevent event;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = may_ask(event);
    if (result == CUDA_SUCCESS && !complete(event))
        result = CUDA_ERROR_NOT_READY;
    else if (result == CUDA_SUCCESS)
        sim_order_host_after(clock_of(event));
    sim_schedule_polled(handle, result != CUDA_ERROR_NOT_READY);
    sim_unlock();
    return result;
}

static void wait_for_foreign(CUevent event)
{
    uint64_t number = sim_records_last(event->records);
    event->refs++;
    while (!sim_records_reached(event->records, number) && sim_state_now() == SIM_READY)
        sim_wait_elsewhere();
    unref(event);
}

CUresult cuEventSynchronize(CUevent handle)
{
    SIM_ENTER_WITH(cuEventSynchronize, handle);
    sim_lock();
    CUevent event;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = may_ask(event);
    if (result == CUDA_SUCCESS) {
        struct sim_clock seen = {0}; /* the event may be recorded anew, or destroyed, during the wait */
        sim_clock_join(&seen, clock_of(event));
        if (foreign(event))
            wait_for_foreign(event);
        else if (!complete(event))
            result = sim_wait(event->stream, event->position);
        sim_order_host_after(&seen);
        sim_clock_clear(&seen);
    }
    sim_pool_trim();
    sim_unlock();
    return result;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    SIM_ENTER_WITH(cuEventElapsedTime_v2, ms, start, end);
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUevent a, b;
    CUresult result = get(start, &a);
    if (result == CUDA_SUCCESS)
        result = get(end, &b);
    if (result == CUDA_SUCCESS && ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING || !a->stream || !b->stream ||
                                      a->context != b->context))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && !(complete(a) && complete(b)))
        result = CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS)
        *ms = (float)((double)((int64_t)b->time_ns - (int64_t)a->time_ns) / 1e6);
    sim_unlock();
    return result;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(ms, start, end);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    SIM_ENTER_WITH(cuIpcGetEventHandle, handle, event);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUevent found;
    CUresult result = sim.config.ipc ? get(event, &found) : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        result = found->records ? sim_records_export(found->records, handle) : CUDA_ERROR_INVALID_HANDLE;
    sim_unlock();
    return result;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    SIM_ENTER_WITH(cuIpcOpenEventHandle, event);
    if (!event)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_records *records;
    CUresult result = sim.config.ipc ? sim_records_import(&handle, &records) : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        result = new_event(event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS, records);
        if (result != CUDA_SUCCESS)
            sim_records_drop(records);
    }
    sim_unlock();
    return result;
}
