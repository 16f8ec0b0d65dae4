#include "graphs/captured_work.h"

#include "streams/queue.h"

void sim_capture_end(struct sim_capture *capture)
{
    sim_capture_close(capture);
    capture->graph->capturing = false;
}

/* The stream that began a capture is gone: nobody can end it. */
static void capture_stream_gone(CUstream stream)
{
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return;
    sim_capture_ruin(capture);
    if (capture->origin != stream) {
        if (stream->tips)
            sim_nodes_clear(stream->tips);
        sim_capture_leave(stream);
        return;
    }
    sim_capture_end(capture);
    if (capture->made)
        sim_graph_free(capture->graph);
    sim_capture_unref(capture);
}

CUresult sim_capture_step(CUstream stream, struct sim_step step, CUgraphNode *ret)
{
    struct sim_capture *capture = stream->capture;
    struct sim_nodes *tips = sim_capture_tips(stream);
    CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : tips           ? CUDA_SUCCESS
                                       : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        sim_step_drop(&step);
        return result;
    }
    result = sim_graph_add(capture->graph, tips->at, tips->count, step, ret);
    if (result == CUDA_SUCCESS) {
        tips->count = 0;
        if (sim_nodes_add(tips, *ret) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        sim_capture_ruin(capture);
    return result;
}

CUresult sim_capture_work(CUstream stream, struct sim_work *work)
{
    CUgraphNode node;
    if (work->capturable)
        return sim_capture_step(stream, (struct sim_step){.type = work->node, .work = work}, &node);
    if (work->finish) {
        work->dropped = true;
        work->finish(work);
    }
    sim_work_free(work);
    return sim_capture_unsupported(stream);
}

CUresult sim_capture_join(CUstream stream, struct sim_capture *capture, const struct sim_nodes *tips)
{
    if (capture->over)
        return stream->capture ? sim_capture_unsupported(stream) : CUDA_ERROR_CAPTURED_EVENT;
    if (capture->invalid || (stream->capture && stream->capture->invalid))
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && stream->capture != capture) {
        sim_capture_ruin(stream->capture);
        sim_capture_ruin(capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->kind == SIM_STREAM_LEGACY) {
        sim_capture_ruin(capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!stream->capture)
        sim_capture_enter(stream, capture);
    struct sim_nodes *own = sim_capture_tips(stream);
    int error = own ? 0 : -1;
    for (unsigned i = 0; i < tips->count && !error; i++)
        error = sim_nodes_add(own, tips->at[i]);
    return error ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void sim_stream_end(CUstream stream, bool forget)
{
    sim_stream_ref(stream);
    capture_stream_gone(stream);
    sim_stream_close(stream, forget);
    sim_stream_unref(stream);
}
