#include "streams/capture.h"

#include <stdatomic.h>
#include <stdlib.h>

static struct sim_capture *captures; /* under way */

static atomic_uint capture_count;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

const void *sim_capture_thread(void)
{
    return &thread_mode;
}

bool sim_capturing(const struct CUstream_st *stream)
{
    return stream->capture != NULL;
}

void sim_capture_unref(struct sim_capture *capture)
{
    if (--capture->refs == 0)
        free(capture);
}

void sim_capture_ruin(struct sim_capture *capture)
{
    capture->invalid = true;
}

CUresult sim_capture_unsupported(CUstream stream)
{
    sim_capture_ruin(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static bool capture_conflicts(CUcontext context, const struct sim_capture *capture)
{
    for (CUstream s = capture->streams; s; s = s->next_captured) {
        if (s->context == context && !(s->flags & CU_STREAM_NON_BLOCKING))
            return true;
    }
    return false;
}

CUresult sim_capture_legacy(CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *c = captures; c && stream->kind == SIM_STREAM_LEGACY; c = c->next) {
        if (!capture_conflicts(stream->context, c))
            continue;
        sim_capture_ruin(c);
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

bool sim_capture_conflicts(CUcontext context)
{
    bool conflicts = false;
    for (struct sim_capture *c = captures; c && !conflicts; c = c->next)
        conflicts = capture_conflicts(context, c);
    return conflicts;
}

CUresult sim_capture_forbids(void)
{
    CUresult result = CUDA_SUCCESS;
    if (atomic_load_explicit(&capture_count, memory_order_relaxed) == 0 || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return result;
    for (struct sim_capture *c = captures; c; c = c->next) {
        bool own = c->thread == sim_capture_thread() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool others = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!own && !others)
            continue;
        sim_capture_ruin(c);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult sim_capture_context(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *c = captures; c; c = c->next) {
        for (CUstream s = c->streams; s; s = s->next_captured) {
            if (s->context == context) {
                sim_capture_ruin(c);
                result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
        }
    }
    return result == CUDA_SUCCESS ? sim_capture_forbids() : result;
}

void sim_capture_enter(CUstream stream, struct sim_capture *capture)
{
    stream->capture = capture;
    stream->next_captured = capture->streams;
    capture->streams = stream;
    sim_stream_ref(stream);
}

void sim_capture_leave(CUstream stream)
{
    CUstream *link = &stream->capture->streams;
    while (*link != stream)
        link = &(*link)->next_captured;
    *link = stream->next_captured;
    stream->capture = NULL;
    free(stream->tips);
    stream->tips = NULL;
    sim_stream_unref(stream);
}

struct sim_nodes *sim_capture_tips(CUstream stream)
{
    if (!stream->tips)
        stream->tips = calloc(1, sizeof *stream->tips);
    return stream->tips;
}

void sim_capture_open(struct sim_capture *capture)
{
    capture->next = captures;
    captures = capture;
    atomic_fetch_add(&capture_count, 1);
}

void sim_capture_close(struct sim_capture *capture)
{
    while (capture->streams) {
        CUstream stream = capture->streams;
        if (stream->tips)
            sim_nodes_clear(stream->tips);
        sim_capture_leave(stream);
    }
    struct sim_capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    capture->over = true;
    atomic_fetch_sub(&capture_count, 1);
}

CUstreamCaptureMode sim_capture_set_mode(CUstreamCaptureMode mode)
{
    CUstreamCaptureMode before = thread_mode;
    thread_mode = mode;
    return before;
}
