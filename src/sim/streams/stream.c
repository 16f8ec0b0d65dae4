#include "streams/stream.h"

#include <assert.h>
#include <stdlib.h>

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
