/* Calls of streams and events that need more than one function of the driver. */
#include "context.h"
#include "entry.h"
#include "error.h"

cudaError_t sg_cudaStreamCreate(const struct sg_rt_driver *driver, CUstream *ret)
{
    cudaError_t error = sg_rt_context();
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuStreamCreate(ret, CU_STREAM_DEFAULT));
}

cudaError_t sg_cudaEventCreate(const struct sg_rt_driver *driver, CUevent *ret)
{
    cudaError_t error = sg_rt_context();
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuEventCreate(ret, CU_EVENT_DEFAULT));
}

cudaError_t sg_cudaStreamGetDevice(const struct sg_rt_driver *driver, CUstream stream, int *ret)
{
    CUcontext context = NULL;
    if (!ret)
        return cudaErrorInvalidValue;
    cudaError_t error = sg_rt_context();
    if (error == cudaSuccess)
        error = sg_rt_translate(driver->cuStreamGetCtx(stream, &context));
    if (error != cudaSuccess)
        return error;
    int device = sg_rt_device_of(context);
    if (device < 0)
        return sg_rt_device(ret);
    *ret = device;
    return cudaSuccess;
}

/* Edges of a captured graph carry no data here: their list is absent. */
static cudaError_t capture_info(const struct sg_rt_driver *driver, CUstream stream, CUstreamCaptureStatus *status,
                                cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    return sg_rt_translate(driver->cuStreamGetCaptureInfo(stream, status, id, graph, nodes, count));
}

static cudaError_t capture_info_with_edges(const struct sg_rt_driver *driver, CUstream stream,
                                           CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                           const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count)
{
    cudaError_t error = capture_info(driver, stream, status, id, graph, nodes, count);
    if (error == cudaSuccess && edges)
        *edges = NULL;
    return error;
}

#if CUDART_MAJOR == 12
cudaError_t sg_cudaStreamGetCaptureInfo(const struct sg_rt_driver *driver, CUstream stream,
                                        CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return capture_info(driver, stream, status, id, NULL, NULL, NULL);
}

cudaError_t sg_cudaStreamGetCaptureInfo_v2(const struct sg_rt_driver *driver, CUstream stream,
                                           CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                           const CUgraphNode **nodes, size_t *count)
{
    return capture_info(driver, stream, status, id, graph, nodes, count);
}

cudaError_t sg_cudaStreamGetCaptureInfo_v3(const struct sg_rt_driver *driver, CUstream stream,
                                           CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                           const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count)
{
    return capture_info_with_edges(driver, stream, status, id, graph, nodes, edges, count);
}
#else
cudaError_t sg_cudaStreamGetCaptureInfo(const struct sg_rt_driver *driver, CUstream stream,
                                        CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                        const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count)
{
    return capture_info_with_edges(driver, stream, status, id, graph, nodes, edges, count);
}
#endif
