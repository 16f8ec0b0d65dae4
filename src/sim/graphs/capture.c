/* Stream captures: work submitted to a capturing stream becomes a node of a graph. What is prohibited meanwhile, and
   which captures it ruins, is as the driver API's reference says of streams' captures and of
   cuThreadExchangeStreamCaptureMode. */
#include <stdatomic.h>
#include <stdlib.h>

#include "graphs/graph.h"

static struct sim_capture *captures; /* under way */
static atomic_uint capture_count;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static const void *this_thread(void)
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

static bool blocking_conflict(CUcontext context, const struct sim_capture *capture)
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
        if (!blocking_conflict(stream->context, c))
            continue;
        sim_capture_ruin(c);
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

CUresult sim_capture_forbids(void)
{
    CUresult result = CUDA_SUCCESS;
    if (atomic_load_explicit(&capture_count, memory_order_relaxed) == 0 ||
        thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return result;
    for (struct sim_capture *c = captures; c; c = c->next) {
        bool own = c->thread == this_thread() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
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

static void enter(CUstream stream, struct sim_capture *capture)
{
    stream->capture = capture;
    stream->next_captured = capture->streams;
    capture->streams = stream;
    sim_stream_ref(stream);
}

static void leave(CUstream stream)
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

static struct sim_nodes *tips_of(CUstream stream)
{
    if (!stream->tips)
        stream->tips = calloc(1, sizeof *stream->tips);
    return stream->tips;
}

static void end(struct sim_capture *capture)
{
    while (capture->streams) {
        CUstream stream = capture->streams;
        if (stream->tips)
            sim_nodes_clear(stream->tips);
        leave(stream);
    }
    struct sim_capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    capture->over = true;
    capture->graph->capturing = false;
    atomic_fetch_sub(&capture_count, 1);
}

/* The stream that began a capture is gone: nobody can end it. */
void sim_capture_stream_gone(CUstream stream)
{
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return;
    sim_capture_ruin(capture);
    if (capture->origin != stream) {
        if (stream->tips)
            sim_nodes_clear(stream->tips);
        leave(stream);
        return;
    }
    end(capture);
    if (capture->made)
        sim_graph_free(capture->graph);
    sim_capture_unref(capture);
}

CUresult sim_capture_step(CUstream stream, struct sim_step step, CUgraphNode *ret)
{
    struct sim_capture *capture = stream->capture;
    struct sim_nodes *tips = tips_of(stream);
    CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : tips ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
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
        enter(stream, capture);
    struct sim_nodes *own = tips_of(stream);
    int error = own ? 0 : -1;
    for (unsigned i = 0; i < tips->count && !error; i++)
        error = sim_nodes_add(own, tips->at[i]);
    return error ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult begin(CUstream handle, CUgraph graph, const CUgraphNode *deps, size_t count, CUstreamCaptureMode mode)
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
        *capture = (struct sim_capture){.id = ++sim.next_id, .graph = graph, .made = made, .mode = mode,
            .thread = this_thread(), .origin = stream, .refs = 1, .next = captures};
        graph->capturing = true;
        captures = capture;
        atomic_fetch_add(&capture_count, 1);
        enter(stream, capture);
        for (size_t i = 0; i < count && tips_of(stream); i++)
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
    return begin(stream, NULL, NULL, 0, mode);
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
    return graph ? begin(stream, graph, dependencies, count, mode) : CUDA_ERROR_INVALID_VALUE;
}

static bool joined(const struct sim_capture *capture)
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
    } else if (capture && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread()) {
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    } else if (capture) {
        result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                 : joined(capture) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        end(capture);
        *graph = result == CUDA_SUCCESS ? capture->graph : NULL;
        if (result != CUDA_SUCCESS && capture->made)
            sim_graph_free(capture->graph);
        sim_capture_unref(capture);
    }
    sim_unlock();
    return result;
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
    return !stream->capture ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Of the legacy stream it can only be said that it does not capture, and not while a blocking stream does: that is an
   error, but ruins nothing. */
static CUresult status_stream(CUstream handle, CUstream *ret)
{
    CUresult result = sim_stream_get(handle, ret);
    bool legacy = result == CUDA_SUCCESS && (*ret)->kind == SIM_STREAM_LEGACY;
    for (struct sim_capture *c = captures; c && legacy && result == CUDA_SUCCESS; c = c->next)
        result = blocking_conflict((*ret)->context, c) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
    return result;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    SIM_ENTER_WITH(cuStreamIsCapturing, stream, status);
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream found;
    CUresult result = status_stream(stream, &found);
    if (result == CUDA_SUCCESS)
        *status = status_of(found);
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
    CUresult result = status_stream(stream, &found);
    if (result == CUDA_SUCCESS)
        *status = status_of(found);
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
        result = !stream->capture ? CUDA_ERROR_ILLEGAL_STATE
                 : stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (!sim_handle_valid(dependencies[i], SIM_KIND_NODE) || dependencies[i]->graph != stream->capture->graph)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && !tips_of(stream))
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

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t count,
    unsigned int flags)
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
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
    return cuStreamIsCapturing(PER_THREAD(stream), status);
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph
    *graph, const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(PER_THREAD(stream), status, id, graph, dependencies, edges, count);
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph
    *graph, const CUgraphNode **dependencies, size_t *count)
{
    return cuStreamGetCaptureInfo_v2(PER_THREAD(stream), status, id, graph, dependencies, count);
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo(PER_THREAD(stream), status, id);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    return cuStreamBeginCapture(PER_THREAD(stream));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    return cuStreamBeginCapture_v2(PER_THREAD(stream), mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const
    CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    return cuStreamBeginCaptureToGraph(PER_THREAD(stream), graph, dependencies, edges, count, mode);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return cuStreamEndCapture(PER_THREAD(stream), graph);
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, CUgraphNode *dependencies, size_t count, unsigned int
    flags)
{
    return cuStreamUpdateCaptureDependencies(PER_THREAD(stream), dependencies, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData
    *edges, size_t count, unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(PER_THREAD(stream), dependencies, edges, count, flags);
}
