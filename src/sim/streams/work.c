#include "streams/work.h"
#include "graphs/graph.h"
#include "hazard/hazard.h"
#include "hazard/owner.h"
#include "streams/executor.h"
#include "streams/schedule.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sim_stream_ref(CUstream stream)
{
    stream->refs++;
}

void sim_stream_unref(CUstream stream)
{
    assert(stream->refs > 0);
    if (--stream->refs == 0) {
        assert(!stream->head && !stream->alive && !stream->waiters);
        sim_order_stream_end(stream);
        free(stream);
    }
}

bool sim_stream_idle(const struct CUstream_st *stream)
{
    return stream->completed == stream->submitted;
}

static void drop(struct sim_work *work)
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

/* What the legacy stream's rules and cuCtxWaitEvent make `work` wait for. */
static int add_implied(CUstream stream, struct sim_work *work)
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
static CUresult wait_for_room(CUstream stream)
{
    unsigned depth = sim.config.depth;
    CUresult result = stream->context->error;
    if (stream->kind != SIM_STREAM_MARKER && stream->submitted - stream->completed >= depth)
        result = sim_executor_wait(stream, stream->submitted - depth + depth / 8 + 1);
    if (sim_executor_stopped())
        return CUDA_ERROR_DEINITIALIZED;
    return result == CUDA_SUCCESS && !stream->alive ? CUDA_ERROR_CONTEXT_IS_DESTROYED : result;
}

static CUresult submit(CUstream stream, struct sim_work *work, bool waits, uint64_t *ret_position)
{
    if (sim_capturing(stream)) {
        if (waits)
            work->capturable = false;
        if (ret_position)
            *ret_position = stream->submitted;
        return sim_capture_work(stream, work);
    }
    sim_stream_ref(stream);
    CUresult result = sim_capture_legacy(stream);
    if (result == CUDA_SUCCESS)
        sim_schedule_step();
    if (result == CUDA_SUCCESS)
        result = wait_for_room(stream);
    if (result == CUDA_SUCCESS && add_implied(stream, work) != 0)
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
        drop(work);
    }
    sim_stream_unref(stream);
    return result;
}

CUresult sim_submit(CUstream stream, struct sim_work *work, uint64_t *ret_position)
{
    return submit(stream, work, false, ret_position);
}

CUresult sim_submit_and_wait(CUstream stream, struct sim_work *work)
{
    uint64_t position;
    work->host_sees = true;
    sim_stream_ref(stream);
    CUresult result = submit(stream, work, true, &position);
    if (result == CUDA_SUCCESS)
        result = sim_executor_wait(stream, position);
    sim_stream_unref(stream);
    return result;
}

static CUresult context_point(CUcontext context, struct sim_work *work, bool waits, uint64_t *ret_position)
{
    if (!work && !(work = sim_work_new(0, NULL, NULL)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (CUcontext c = sim.contexts; c; c = c->next) {
        for (CUstream s = sim_context_covers(context, c) ? c->streams : NULL; s; s = s->next) {
            if (s != context->marker && sim_work_depend(work, s, s->submitted) != 0) {
                drop(work);
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
    }
    return submit(context->marker, work, waits, ret_position);
}

CUresult sim_context_point(CUcontext context, struct sim_work *work, uint64_t *ret_position)
{
    return context_point(context, work, false, ret_position);
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
    CUresult result = busy ? context_point(context, NULL, true, &position) : context->error;
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

CUresult sim_stream_new(CUcontext context, enum sim_stream_kind kind, unsigned flags, int priority, CUstream *ret)
{
    CUstream stream = calloc(1, sizeof *stream);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->context = context;
    stream->kind = kind;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++sim.next_id;
    stream->refs = 1;
    stream->alive = stream->linked = true;
    stream->host_wants = UINT64_MAX;
    sim_order_stream_new(stream);
    stream->next = context->streams;
    context->streams = stream;
    sim_handle_add(&stream->handle, SIM_KIND_STREAM);
    *ret = stream;
    return CUDA_SUCCESS;
}

void sim_stream_close(CUstream stream, bool forget)
{
    assert(stream->alive);
    sim_handle_drop(&stream->handle);
    stream->alive = false;
    sim_order_stream_closed(stream);
    sim_stream_ref(stream);
    sim_capture_stream_gone(stream);
    if (forget) {
        struct sim_work *keep = stream->running ? stream->head : NULL;
        struct sim_work *work = keep ? keep->next : stream->head;
        if (keep)
            keep->next = NULL;
        stream->head = stream->tail = keep;
        while (work) {
            struct sim_work *next = work->next;
            drop(work);
            work = next;
        }
    }
    sim_executor_announce(stream);
    sim_stream_unref(stream);
}
