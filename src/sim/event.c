#include <stdlib.h>

#include "mem.h"
#include "work.h"

struct CUevent_st {
    struct sim_handle handle;
    CUcontext context;
    unsigned flags, refs; /* the handle, and each record under way */
    CUstream stream;      /* of the last record; NULL before the first. Holds a reference */
    uint64_t position;
    uint64_t time_ns; /* when that was reached */
};

static void unref(CUevent event)
{
    if (--event->refs == 0) {
        if (event->stream)
            sim_stream_unref(event->stream);
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
}

/* The lock is held from the submission until the event says where it was recorded, so that the work cannot be complete
   before that. */
static CUresult record(CUevent handle, CUstream stream)
{
    sim_lock();
    CUevent event;
    CUstream target;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(stream, &target);
    if (result == CUDA_SUCCESS && target->context != event->context)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
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
    return record(event, stream);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    SIM_ENTER(cuEventRecordWithFlags);
    return flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_INVALID_VALUE : record(event, stream);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
    return cuEventRecordWithFlags(event, stream ? stream : CU_STREAM_PER_THREAD, flags);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    return cuEventRecord(event, stream ? stream : CU_STREAM_PER_THREAD);
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent handle)
{
    SIM_ENTER(cuCtxRecordEvent);
    sim_lock();
    CUevent event;
    CUcontext target;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_context_get(context, &target);
    if (result == CUDA_SUCCESS && target != event->context)
        result = CUDA_ERROR_INVALID_HANDLE;
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

CUresult cuCtxWaitEvent(CUcontext context, CUevent handle)
{
    SIM_ENTER(cuCtxWaitEvent);
    sim_lock();
    CUevent event;
    CUcontext target;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_context_get(context, &target);
    if (result == CUDA_SUCCESS && !complete(event) &&
        sim_deps_add(&target->barriers, event->stream, event->position) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    sim_unlock();
    return result;
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
    if (result == CUDA_SUCCESS && !complete(event)) {
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
    CUevent event;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS && !complete(event))
        result = CUDA_ERROR_NOT_READY;
    sim_unlock();
    return result;
}

CUresult cuEventSynchronize(CUevent handle)
{
    SIM_ENTER(cuEventSynchronize);
    sim_lock();
    CUevent event;
    CUresult result = get(handle, &event);
    if (result == CUDA_SUCCESS && !complete(event))
        result = sim_wait(event->stream, event->position);
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
