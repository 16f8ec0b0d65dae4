/* Stream capture. Nothing captures yet, and these calls say so. */
#include "work.h"

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    SIM_ENTER(cuStreamIsCapturing);
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream found;
    CUresult result = sim_stream_get(stream, &found);
    sim_unlock();
    if (result == CUDA_SUCCESS)
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return result;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
    const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
    SIM_ENTER(cuStreamGetCaptureInfo_v3);
    (void)id, (void)graph, (void)dependencies, (void)edges, (void)count; /* set for a live capture only */
    return cuStreamIsCapturing(stream, status);
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

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    static _Thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
    SIM_ENTER(cuThreadExchangeStreamCaptureMode);
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
    return cuStreamIsCapturing(PER_THREAD(stream), status);
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
    CUgraph *graph, const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(PER_THREAD(stream), status, id, graph, dependencies, edges, count);
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
    CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    return cuStreamGetCaptureInfo_v2(PER_THREAD(stream), status, id, graph, dependencies, count);
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo(PER_THREAD(stream), status, id);
}
