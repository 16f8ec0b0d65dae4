/* Entry points of stream captures. */
#include <stdlib.h>

#include "calls.h"
#include "graphs/captured_work.h"
#include "graphs/graph.h"
#include "streams/capture.h"
#include "streams/nodes.h"
#include "streams/stream.h"
#include "work/program_stream.h"

static CUresult capture_begin(CUstream handle, CUgraph graph, const CUgraphNode *deps, size_t count,
    CUstreamCaptureMode mode)
{
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (count && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, &stream);
    bool made = !graph;
    if (result == CUDA_SUCCESS && stream->kind == SIM_STREAM_LEGACY)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (result == CUDA_SUCCESS && stream->capture)
        result = CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS && !made && (sim_graph_get(graph) != CUDA_SUCCESS || graph->capturing))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (!sim_handle_valid(deps[i], SIM_KIND_NODE) || deps[i]->graph != graph)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_capture *capture = result == CUDA_SUCCESS ? calloc(1, sizeof *capture) : NULL;
    if (result == CUDA_SUCCESS && !capture)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && made)
        result = sim_graph_new(&graph);
    if (result == CUDA_SUCCESS) {
        *capture = (struct sim_capture){.id = ++sim.next_id,
            .graph = graph,
            .made = made,
            .mode = mode,
            .thread = sim_capture_thread(),
            .origin = stream,
            .refs = 1};
        graph->capturing = true;
        sim_capture_open(capture);
        sim_capture_enter(stream, capture);
        for (size_t i = 0; i < count && sim_capture_tips(stream); i++)
            sim_nodes_add(stream->tips, deps[i]);
    } else {
        free(capture);
    }
    sim_unlock();
    return result;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    SIM_ENTER_WITH(cuStreamBeginCapture_v2, stream, mode);
    return capture_begin(stream, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    SIM_ENTER_WITH(cuStreamBeginCaptureToGraph, stream, graph, dependencies, edges, count, mode);
    (void)edges;
    return graph ? capture_begin(stream, graph, dependencies, count, mode) : CUDA_ERROR_INVALID_VALUE;
}

static bool capture_is_joined(const struct sim_capture *capture)
{
    static const struct sim_nodes none;
    const struct sim_nodes *tips = capture->origin->tips ? capture->origin->tips : &none;
    for (CUstream s = capture->streams; s; s = s->next_captured) {
        if (s != capture->origin && s->tips && !sim_graph_all_before(capture->graph, s->tips, tips))
            return false;
    }
    return true;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    SIM_ENTER_WITH(cuStreamEndCapture, handle, graph);
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, &stream);
    struct sim_capture *capture = result == CUDA_SUCCESS ? stream->capture : NULL;
    if (result == CUDA_SUCCESS && !capture) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (capture && capture->origin != stream) {
        sim_capture_ruin(capture);
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    } else if (capture && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_capture_thread()) {
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    } else if (capture) {
        result = capture->invalid             ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                 : capture_is_joined(capture) ? CUDA_SUCCESS
                                              : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        sim_capture_end(capture);
        *graph = result == CUDA_SUCCESS ? capture->graph : NULL;
        if (result != CUDA_SUCCESS && capture->made)
            sim_graph_free(capture->graph);
        sim_capture_unref(capture);
    }
    sim_unlock();
    return result;
}

static CUstreamCaptureStatus capture_status(CUstream stream)
{
    return !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* The legacy stream never captures. While a blocking stream does, the question is an error, but ruins nothing. */
static CUresult capture_status_stream(CUstream handle, CUstream *ret)
{
    CUresult result = sim_stream_get(handle, ret);
    bool legacy = result == CUDA_SUCCESS && (*ret)->kind == SIM_STREAM_LEGACY;
    return legacy && sim_capture_conflicts((*ret)->context) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : result;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    SIM_ENTER_WITH(cuStreamIsCapturing, stream, status);
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream found;
    CUresult result = capture_status_stream(stream, &found);
    if (result == CUDA_SUCCESS)
        *status = capture_status(found);
    sim_unlock();
    return result;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
    const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
    SIM_ENTER_WITH(cuStreamGetCaptureInfo_v3, stream, status);
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream found;
    CUresult result = capture_status_stream(stream, &found);
    if (result == CUDA_SUCCESS)
        *status = capture_status(found);
    if (result == CUDA_SUCCESS && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id)
            *id = found->capture->id;
        if (graph)
            *graph = found->capture->graph;
        if (dependencies)
            *dependencies = found->tips ? found->tips->at : NULL;
        if (edges)
            *edges = NULL; /* no edge carries data */
        if (count)
            *count = found->tips ? found->tips->count : 0;
    }
    sim_unlock();
    return result;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
    const CUgraphNode **dependencies, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, NULL, count);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *dependencies, const CUgraphEdgeData *edges,
    size_t count, unsigned int flags)
{
    SIM_ENTER_WITH(cuStreamUpdateCaptureDependencies_v2, handle);
    (void)edges;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = !stream->capture           ? CUDA_ERROR_ILLEGAL_STATE
                 : stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                            : CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (!sim_handle_valid(dependencies[i], SIM_KIND_NODE) || dependencies[i]->graph != stream->capture->graph)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && !sim_capture_tips(stream))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        stream->tips->count = 0;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (sim_nodes_add(stream->tips, dependencies[i]) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_unlock();
    return result;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t count, unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(stream, dependencies, NULL, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_ENTER(cuThreadExchangeStreamCaptureMode);
    if (!mode)
        sim_null_read();
    if ((unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = sim_capture_set_mode(*mode);
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
    return cuStreamIsCapturing(sim_per_thread(stream), status);
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
    const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(sim_per_thread(stream), status, id, graph, dependencies, edges, count);
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
    const CUgraphNode **dependencies, size_t *count)
{
    return cuStreamGetCaptureInfo_v2(sim_per_thread(stream), status, id, graph, dependencies, count);
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo(sim_per_thread(stream), status, id);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    return cuStreamBeginCapture(sim_per_thread(stream));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    return cuStreamBeginCapture_v2(sim_per_thread(stream), mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    return cuStreamBeginCaptureToGraph(sim_per_thread(stream), graph, dependencies, edges, count, mode);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return cuStreamEndCapture(sim_per_thread(stream), graph);
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, CUgraphNode *dependencies, size_t count,
    unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies(sim_per_thread(stream), dependencies, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *dependencies,
    const CUgraphEdgeData *edges, size_t count, unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(sim_per_thread(stream), dependencies, edges, count, flags);
}
