/* Entry points of events. */
#include "calls.h"
#include "device/context.h"
#include "device/green.h"
#include "graphs/captured_work.h"
#include "graphs/graph.h"
#include "hazard/order.h"
#include "memory/pool.h"
#include "streams/capture.h"
#include "streams/event.h"
#include "streams/executor.h"
#include "streams/nodes.h"
#include "streams/queue.h"
#include "streams/records.h"
#include "streams/work.h"
#include "work/program_stream.h"
#include "work/submit.h"

CUresult cuEventCreate(CUevent *handle, unsigned int flags)
{
    SIM_ENTER(cuEventCreate);
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    bool shared = flags & CU_EVENT_INTERPROCESS;
    if (!handle || flags & ~known || (shared && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_records *records = shared ? sim_records_new() : NULL;
    CUresult result = shared && !records ? CUDA_ERROR_OUT_OF_MEMORY : sim_event_new(handle, flags, records);
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
        sim_event_unref(event);
    }
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}

static CUresult event_capture_node(CUevent event, CUstream stream, CUgraphNodeType type)
{
    CUgraphNode node;
    event->refs++;
    return sim_capture_step(stream, (struct sim_step){.type = type, .event = event}, &node);
}

/* A record in a capture stands for what the stream has captured so far; an external one is a node. */
static CUresult event_record_captured(CUevent event, CUstream stream, bool external)
{
    static const struct sim_nodes none;
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external)
        return event_capture_node(event, stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    if (sim_nodes_copy(&event->tips, stream->tips ? stream->tips : &none) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->capture->refs++;
    if (event->capture)
        sim_capture_unref(event->capture);
    event->capture = stream->capture;
    return CUDA_SUCCESS;
}

/* A wait of a capturing stream, or for what was recorded in one. */
static CUresult event_wait_captured(CUevent event, CUstream stream, bool external)
{
    if (external && sim_capturing(stream))
        return event_capture_node(event, stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    if (event->capture)
        return sim_capture_join(stream, event->capture, &event->tips);
    if (!event->stream && !sim_event_is_foreign(event)) /* never recorded: nothing to wait for */
        return CUDA_SUCCESS;
    sim_capture_ruin(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

/* The host may not ask for what was recorded in a capture; nor, unless its thread allows it, for anything beside
   one. */
static CUresult event_may_ask(CUevent event)
{
    if (!event->capture)
        return sim_capture_forbids();
    if (!event->capture->over)
        sim_capture_ruin(event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

/* The lock is held from the submission until the event says where it was recorded, so that the work cannot be complete
   before that. */
static CUresult event_record(CUevent handle, CUstream stream, bool external)
{
    sim_lock();
    CUevent event;
    CUstream target;
    CUresult result = sim_event_get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(stream, &target);
    if (result == CUDA_SUCCESS && sim_context_root(target->context) != sim_context_root(event->context))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = sim_capturing(target) ? event_record_captured(event, target, external)
                                       : sim_event_submit_record(event, target);
    sim_unlock();
    return result;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    SIM_ENTER_WITH(cuEventRecord, event, stream);
    return event_record(event, stream, false);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    SIM_ENTER_WITH(cuEventRecordWithFlags, event, stream);
    return flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_INVALID_VALUE
                                                       : event_record(event, stream, flags & CU_EVENT_RECORD_EXTERNAL);
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
static CUresult event_record_context(CUcontext context, CUevent handle)
{
    sim_lock();
    CUevent event;
    CUcontext target;
    CUresult result = sim_event_get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_context_get(context, &target);
    if (result == CUDA_SUCCESS && sim_context_root(target) != sim_context_root(event->context))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_context(target);
    if (result == CUDA_SUCCESS) {
        struct sim_work *work = sim_event_new_record(event);
        uint64_t position;
        result = work ? sim_context_point(target, work, &position) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            sim_event_set_record(event, target->marker, position);
    }
    sim_unlock();
    return result;
}

static CUresult event_wait_context(CUcontext context, CUevent handle)
{
    sim_lock();
    CUevent event;
    CUcontext target = NULL;
    CUresult result = sim_event_get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_context_get(context, &target);
    if (result == CUDA_SUCCESS)
        result = event->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : sim_capture_context(target);
    if (result == CUDA_SUCCESS)
        sim_order_context_after(target, sim_event_clock(event));
    if (result == CUDA_SUCCESS && !sim_event_is_complete(event)) {
        CUstream stream = event->stream;
        uint64_t position = event->position;
        if (sim_event_is_foreign(event)) { /* the marker's work stands for the other process's */
            struct sim_work *work = sim_event_new_foreign_wait(event);
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
    return event_record_context(context, event);
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
    SIM_ENTER(cuCtxWaitEvent);
    return event_wait_context(context, event);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    SIM_ENTER(cuGreenCtxRecordEvent);
    CUcontext context = sim_green_context(green);
    return context ? event_record_context(context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    SIM_ENTER(cuGreenCtxWaitEvent);
    CUcontext context = sim_green_context(green);
    return context ? event_wait_context(context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned int flags)
{
    SIM_ENTER_WITH(cuStreamWaitEvent, stream);
    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUevent event;
    CUstream target;
    CUresult result = sim_event_get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(stream, &target);
    if (result == CUDA_SUCCESS)
        result = sim_capture_legacy(target);
    if (result == CUDA_SUCCESS && (event->capture || sim_capturing(target))) {
        result = event_wait_captured(event, target, flags & CU_EVENT_WAIT_EXTERNAL);
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
    CUresult result = sim_event_get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = event_may_ask(event);
    if (result == CUDA_SUCCESS && !sim_event_is_complete(event))
        result = CUDA_ERROR_NOT_READY;
    else if (result == CUDA_SUCCESS)
        sim_order_host_after(sim_event_clock(event));
    sim_schedule_polled(handle, result != CUDA_ERROR_NOT_READY);
    sim_unlock();
    return result;
}

static void event_wait_for_foreign(CUevent event)
{
    uint64_t number = sim_records_last(event->records);
    event->refs++;
    while (!sim_records_reached(event->records, number) && sim_state_now() == SIM_READY)
        sim_wait_elsewhere();
    sim_event_unref(event);
}

CUresult cuEventSynchronize(CUevent handle)
{
    SIM_ENTER_WITH(cuEventSynchronize, handle);
    sim_lock();
    CUevent event;
    CUresult result = sim_event_get(handle, &event);
    if (result == CUDA_SUCCESS)
        result = event_may_ask(event);
    if (result == CUDA_SUCCESS) {
        struct sim_clock seen = {0}; /* the event may be recorded anew, or destroyed, during the wait */
        sim_clock_join(&seen, sim_event_clock(event));
        if (sim_event_is_foreign(event))
            event_wait_for_foreign(event);
        else if (!sim_event_is_complete(event))
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
    CUresult result = sim_event_get(start, &a);
    if (result == CUDA_SUCCESS)
        result = sim_event_get(end, &b);
    if (result == CUDA_SUCCESS &&
        ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING || !a->stream || !b->stream || a->context != b->context))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && !(sim_event_is_complete(a) && sim_event_is_complete(b)))
        result = CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS)
        *ms = (float)((double)((int64_t)b->time_ns - (int64_t)a->time_ns) / 1e6);
    sim_schedule_polled(end, result != CUDA_ERROR_NOT_READY);
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
    CUresult result = sim.config.ipc ? sim_event_get(event, &found) : CUDA_ERROR_NOT_SUPPORTED;
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
        result = sim_event_new(event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS, records);
        if (result != CUDA_SUCCESS)
            sim_records_drop(records);
    }
    sim_unlock();
    return result;
}
