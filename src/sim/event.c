#include <stdlib.h>

#include "graph.h"

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
};

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

static bool complete(CUevent event)
{
    return !event->stream || event->stream->completed >= event->position;
}

CUresult cuEventCreate(CUevent *handle, unsigned int flags)
{
    SIM_ENTER(cuEventCreate);
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!handle || flags & ~known || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    CUresult result = sim_context_current(&event->context);
    if (result == CUDA_SUCCESS) {
        event->flags = flags;
        event->refs = 1;
        sim_handle_add(&event->handle, SIM_KIND_EVENT);
        *handle = event;
    } else {
        free(event);
    }
    sim_unlock();
    return result;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    SIM_ENTER(cuEventDestroy_v2);
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

static void finish_record(struct sim_work *work)
{
    CUevent event = *(CUevent *)work->payload;
    if (!work->dropped && event->stream == work->stream && event->position == work->position)
        event->time_ns = sim_now_ns();
    unref(event);
}

static struct sim_work *new_record(CUevent event)
{
    struct sim_work *work = sim_work_new(sizeof event, NULL, finish_record);
    if (work) {
        *(CUevent *)work->payload = event;
        event->refs++;
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

int sim_event_depend(CUevent event, struct sim_work *work)
{
    if (!event->stream || event->capture)
        return 0;
    sim_clock_join(&work->after, &event->clock);
    return sim_work_depend(work, event->stream, event->position);
}

void sim_event_recorded(CUevent event, CUstream stream, uint64_t position)
{
    recorded(event, stream, position);
    event->time_ns = sim_now_ns();
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
    if (!event->stream) /* never recorded: nothing to wait for */
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
    if (result == CUDA_SUCCESS && sim_capturing(target)) {
        result = record_captured(event, target, external);
    } else if (result == CUDA_SUCCESS) {
        struct sim_work *work = new_record(event);
        uint64_t position;
        result = work ? sim_submit(target, work, &position) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            recorded(event, target, position);
    }
    sim_unlock();
    return result;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    SIM_ENTER(cuEventRecord);
    return record(event, stream, false);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    SIM_ENTER(cuEventRecordWithFlags);
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
        sim_order_context_after(target, &event->clock);
    for (CUcontext c = sim.contexts; c && result == CUDA_SUCCESS && !complete(event); c = c->next) {
        if (c->alive && sim_context_covers(target, c) && sim_deps_add(&c->barriers, event->stream, event->position) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
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
    SIM_ENTER(cuStreamWaitEvent);
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
        sim_order_stream_after(target, &event->clock);
        if (complete(event)) {
            sim_unlock();
            return CUDA_SUCCESS;
        }
        struct sim_work *work = sim_work_new(0, NULL, NULL);
        if (work && sim_work_depend(work, event->stream, event->position) == 0) {
            result = sim_submit(target, work, NULL);
        } else {
            result = CUDA_ERROR_OUT_OF_MEMORY;
            if (work)
                sim_work_free(work);
        }
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
    SIM_ENTER(cuEventQuery);
    sim_lock();
    sim_schedule_step();
    CUevent event;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = may_ask(event);
    if (result == CUDA_SUCCESS && !complete(event))
        result = CUDA_ERROR_NOT_READY;
    else if (result == CUDA_SUCCESS)
        sim_order_host_after(&event->clock);
    sim_schedule_polled(handle, result != CUDA_ERROR_NOT_READY);
    sim_unlock();
    return result;
}

CUresult cuEventSynchronize(CUevent handle)
{
    SIM_ENTER(cuEventSynchronize);
    sim_lock();
    CUevent event;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = may_ask(event);
    if (result == CUDA_SUCCESS) {
        struct sim_clock seen = {0}; /* the event may be recorded anew, or destroyed, during the wait */
        sim_clock_join(&seen, &event->clock);
        if (!complete(event))
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
    SIM_ENTER(cuEventElapsedTime_v2);
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

/* Events between processes are not simulated. */
CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    SIM_ENTER(cuIpcGetEventHandle);
    (void)handle, (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    SIM_ENTER(cuIpcOpenEventHandle);
    (void)event, (void)handle;
    return CUDA_ERROR_NOT_SUPPORTED;
}
