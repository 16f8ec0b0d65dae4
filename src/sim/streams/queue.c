#include "streams/queue.h"

#include <assert.h>

#include "device/device.h"
#include "hazard/hazard.h"
#include "streams/capture.h"
#include "streams/executor.h"
#include "streams/schedule.h"

static void queue_drop(struct sim_work *work)
{
    work->dropped = true;
    if (work->finish)
        work->finish(work);
    sim_work_free(work);
}

CUresult sim_wait(CUstream stream, uint64_t position)
{
    sim_stream_ref(stream);
    CUresult result = sim_executor_wait(stream, position);
    sim_stream_unref(stream);
    return result;
}

CUresult sim_wait_stream(CUstream stream)
{
    return sim_wait(stream, stream->submitted);
}

/* Has `work` wait as the legacy stream's rules and cuCtxWaitEvent demand. */
static int queue_add_implied(CUstream stream, struct sim_work *work)
{
    CUcontext context = stream->context;
    int error = 0;
    if (stream->kind == SIM_STREAM_LEGACY) {
        for (CUstream s = context->streams; s && !error; s = s->next) {
            if (s != stream && s->kind != SIM_STREAM_MARKER && !(s->flags & CU_STREAM_NON_BLOCKING))
                error = sim_work_depend(work, s, s->submitted);
        }
    } else if (stream->kind != SIM_STREAM_MARKER && !(stream->flags & CU_STREAM_NON_BLOCKING) && context->legacy) {
        error = sim_work_depend(work, context->legacy, context->legacy->submitted);
    }
    struct sim_deps *barriers = stream->kind == SIM_STREAM_MARKER ? NULL : context->barriers;
    for (unsigned i = 0; barriers && i < barriers->count && !error; i++)
        error = sim_work_depend(work, barriers->at[i].stream, barriers->at[i].position);
    return error;
}

/* The caller has a reference to the stream, which may be destroyed while this waits. */
static CUresult queue_wait_for_room(CUstream stream)
{
    unsigned depth = sim.config.depth;
    CUresult result = stream->context->error;
    if (stream->kind != SIM_STREAM_MARKER && stream->submitted - stream->completed >= depth)
        result = sim_executor_wait(stream, stream->submitted - depth + depth / 8 + 1);
    if (sim_executor_stopped())
        return CUDA_ERROR_DEINITIALIZED;
    return result == CUDA_SUCCESS && !stream->alive ? CUDA_ERROR_CONTEXT_IS_DESTROYED : result;
}

CUresult sim_enqueue(CUstream stream, struct sim_work *work, bool waits, uint64_t *ret_position)
{
    sim_stream_ref(stream);
    CUresult result = sim_capture_legacy(stream);
    if (result == CUDA_SUCCESS)
        sim_schedule_step();
    if (result == CUDA_SUCCESS)
        result = queue_wait_for_room(stream);
    if (result == CUDA_SUCCESS && queue_add_implied(stream, work) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        work->context = stream->context;
        work->stream = stream;
        work->position = ++stream->submitted;
        if (stream->tail)
            stream->tail->next = work;
        else
            stream->head = work;
        stream->tail = work;
        work->allocated = sim_schedule_allocations();
        sim_order_submitted(stream, work);
        sim_hazard_submitted(stream, work);
        if (ret_position)
            *ret_position = work->position;
        sim_executor_start(stream, work, waits);
    } else {
        queue_drop(work);
    }
    sim_stream_unref(stream);
    return result;
}

static CUresult queue_context_point(CUcontext context, struct sim_work *work, bool waits, uint64_t *ret_position)
{
    if (!work && !(work = sim_work_new(0, NULL, NULL)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (CUcontext c = sim.contexts; c; c = c->next) {
        for (CUstream s = sim_context_covers(context, c) ? c->streams : NULL; s; s = s->next) {
            if (s != context->marker && sim_work_depend(work, s, s->submitted) != 0) {
                queue_drop(work);
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
    }
    return sim_enqueue(context->marker, work, waits, ret_position);
}

CUresult sim_context_point(CUcontext context, struct sim_work *work, uint64_t *ret_position)
{
    return queue_context_point(context, work, false, ret_position);
}

CUresult sim_wait_context(CUcontext context)
{
    bool busy = false;
    for (CUcontext c = sim.contexts; c; c = c->next) {
        for (CUstream s = sim_context_covers(context, c) ? c->streams : NULL; s; s = s->next)
            busy |= !sim_stream_idle(s);
    }
    struct sim_clock seen = {0};
    sim_order_context(context, &seen);
    uint64_t position;
    CUresult result = busy ? queue_context_point(context, NULL, true, &position) : context->error;
    if (busy && result == CUDA_SUCCESS)
        result = sim_wait(context->marker, position);
    sim_order_host_after(&seen);
    sim_clock_clear(&seen);
    return result;
}

CUresult sim_wait_device(struct sim_device *device)
{
    CUresult result = CUDA_SUCCESS;
    for (CUcontext c = sim.contexts; c; c = c->next) {
        if (c->alive && c->device == device) {
            CUresult waited = sim_wait_context(c);
            result = result == CUDA_SUCCESS ? waited : result;
        }
    }
    return result;
}

void sim_stream_close(CUstream stream, bool forget)
{
    assert(stream->alive);
    sim_handle_drop(&stream->handle);
    stream->alive = false;
    sim_order_stream_closed(stream);
    sim_stream_ref(stream);
    if (forget) {
        struct sim_work *keep = stream->running ? stream->head : NULL;
        struct sim_work *work = keep ? keep->next : stream->head;
        if (keep)
            keep->next = NULL;
        stream->head = stream->tail = keep;
        while (work) {
            struct sim_work *next = work->next;
            queue_drop(work);
            work = next;
        }
    }
    sim_executor_announce(stream);
    sim_stream_unref(stream);
}
