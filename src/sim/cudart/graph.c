/* Graphs, where the runtime's parameters are not the driver's own. */
#include "context.h"
#include "copy_box.h"
#include "entry.h"
#include "error.h"
#include "registry.h"

#include <string.h>

static cudaError_t kernel_params(const struct cudaKernelNodeParams *p, CUDA_KERNEL_NODE_PARAMS *ret)
{
    struct sg_rt_kernel *kernel = NULL;
    CUfunction function = NULL;
    cudaError_t error = p ? sg_rt_context() : cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = sg_rt_kernel(p->func, &kernel);
    if (error == cudaSuccess)
        error = sg_rt_kernel_function(kernel, &function);
    if (error != cudaSuccess)
        return error;
    *ret = (CUDA_KERNEL_NODE_PARAMS){.func = function, .gridDimX = p->gridDim.x, .gridDimY = p->gridDim.y,
        .gridDimZ = p->gridDim.z, .blockDimX = p->blockDim.x, .blockDimY = p->blockDim.y, .blockDimZ = p->blockDim.z,
        .sharedMemBytes = p->sharedMemBytes, .kernelParams = p->kernelParams, .extra = p->extra};
    return cudaSuccess;
}

cudaError_t sg_cudaGraphAddKernelNode(const struct sg_rt_driver *driver, CUgraphNode *node, CUgraph graph,
                                      const CUgraphNode *deps, size_t count, const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS now;
    cudaError_t error = kernel_params(params, &now);
    return error != cudaSuccess ? error
                                : sg_rt_translate(driver->cuGraphAddKernelNode(node, graph, deps, count, &now));
}

cudaError_t sg_cudaGraphKernelNodeSetParams(const struct sg_rt_driver *driver, CUgraphNode node,
                                            const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS now;
    cudaError_t error = kernel_params(params, &now);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuGraphKernelNodeSetParams(node, &now));
}

cudaError_t sg_cudaGraphExecKernelNodeSetParams(const struct sg_rt_driver *driver, CUgraphExec exec, CUgraphNode node,
                                                const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS now;
    cudaError_t error = kernel_params(params, &now);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuGraphExecKernelNodeSetParams(exec, node, &now));
}

static cudaError_t graph_describe_box(const struct sg_rt_driver *driver, const struct cudaMemcpy3DParms *p,
    CUDA_MEMCPY3D *ret)
{
    cudaError_t error = p ? sg_rt_context() : cudaErrorInvalidValue;
    return error != cudaSuccess ? error : sg_rt_describe_box(driver, p, ret);
}

cudaError_t sg_cudaGraphAddMemcpyNode(const struct sg_rt_driver *driver, CUgraphNode *node, CUgraph graph,
                                      const CUgraphNode *deps, size_t count, const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D copy;
    cudaError_t error = graph_describe_box(driver, params, &copy);
    return error != cudaSuccess
               ? error
               : sg_rt_translate(driver->cuGraphAddMemcpyNode(node, graph, deps, count, &copy, NULL));
}

cudaError_t sg_cudaGraphMemcpyNodeSetParams(const struct sg_rt_driver *driver, CUgraphNode node,
                                            const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D copy;
    cudaError_t error = graph_describe_box(driver, params, &copy);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuGraphMemcpyNodeSetParams(node, &copy));
}

cudaError_t sg_cudaGraphExecMemcpyNodeSetParams(const struct sg_rt_driver *driver, CUgraphExec exec, CUgraphNode node,
                                                const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D copy;
    cudaError_t error = graph_describe_box(driver, params, &copy);
    return error != cudaSuccess ? error
                                : sg_rt_translate(driver->cuGraphExecMemcpyNodeSetParams(exec, node, &copy, NULL));
}

/* A line of bytes: where each side lies, the driver finds out. */
static CUDA_MEMCPY3D graph_describe_line(void *to, const void *from, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = (CUdeviceptr)(uintptr_t)from,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = (CUdeviceptr)(uintptr_t)to, .WidthInBytes = bytes,
        .Height = 1, .Depth = 1};
}

cudaError_t sg_cudaGraphAddMemcpyNode1D(const struct sg_rt_driver *driver, CUgraphNode *node, CUgraph graph,
                                        const CUgraphNode *deps, size_t count, void *to, const void *from,
                                        size_t bytes, int kind)
{
    (void)kind;
    CUDA_MEMCPY3D copy = graph_describe_line(to, from, bytes);
    cudaError_t error = sg_rt_context();
    return error != cudaSuccess
               ? error
               : sg_rt_translate(driver->cuGraphAddMemcpyNode(node, graph, deps, count, &copy, NULL));
}

cudaError_t sg_cudaGraphMemcpyNodeSetParams1D(const struct sg_rt_driver *driver, CUgraphNode node, void *to,
                                              const void *from, size_t bytes, int kind)
{
    (void)kind;
    CUDA_MEMCPY3D copy = graph_describe_line(to, from, bytes);
    cudaError_t error = sg_rt_context();
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuGraphMemcpyNodeSetParams(node, &copy));
}

cudaError_t sg_cudaGraphExecMemcpyNodeSetParams1D(const struct sg_rt_driver *driver, CUgraphExec exec,
                                                  CUgraphNode node, void *to, const void *from, size_t bytes, int kind)
{
    (void)kind;
    CUDA_MEMCPY3D copy = graph_describe_line(to, from, bytes);
    cudaError_t error = sg_rt_context();
    return error != cudaSuccess ? error
                                : sg_rt_translate(driver->cuGraphExecMemcpyNodeSetParams(exec, node, &copy, NULL));
}

cudaError_t sg_cudaGraphConditionalHandleCreate(const struct sg_rt_driver *driver, cuuint64_t *ret, CUgraph graph,
                                                unsigned at_launch, unsigned flags)
{
    CUcontext context = NULL;
    cudaError_t error = sg_rt_context();
    if (error == cudaSuccess)
        error = sg_rt_translate(driver->cuCtxGetCurrent(&context));
    return error != cudaSuccess
               ? error
               : sg_rt_translate(driver->cuGraphConditionalHandleCreate(ret, graph, context, at_launch, flags));
}

/* The driver's parameters of a node of any type. */
static cudaError_t any_params(const struct sg_rt_driver *driver, const struct cudaGraphNodeParams *p,
    CUgraphNodeParams *ret)
{
    if (!p)
        return cudaErrorInvalidValue;
    memcpy(ret, p, sizeof *ret);
    if (p->type == CU_GRAPH_NODE_TYPE_KERNEL)
        return kernel_params(&p->kernel, &ret->kernel);
    if (p->type != CU_GRAPH_NODE_TYPE_MEMCPY)
        return sg_rt_context();
    memset(&ret->memcpy, 0, sizeof ret->memcpy);
    return graph_describe_box(driver, &p->memcpy.copyParams, &ret->memcpy.copyParams);
}

static cudaError_t add_any(const struct sg_rt_driver *driver, CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                           size_t count, struct cudaGraphNodeParams *params)
{
    CUgraphNodeParams now;
    cudaError_t error = any_params(driver, params, &now);
    if (error == cudaSuccess)
        error = sg_rt_translate(driver->cuGraphAddNode(node, graph, deps, NULL, count, &now));
    if (error == cudaSuccess && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        params->alloc.dptr = now.alloc.dptr;
    if (error == cudaSuccess && params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        params->conditional.phGraph_out = now.conditional.phGraph_out;
    return error;
}

#if CUDART_MAJOR == 12
cudaError_t sg_cudaGraphAddNode(const struct sg_rt_driver *driver, CUgraphNode *node, CUgraph graph,
                                const CUgraphNode *deps, size_t count, struct cudaGraphNodeParams *params)
{
    return add_any(driver, node, graph, deps, count, params);
}

cudaError_t sg_cudaGraphAddNode_v2(const struct sg_rt_driver *driver, CUgraphNode *node, CUgraph graph,
                                   const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t count,
                                   struct cudaGraphNodeParams *params)
{
    (void)edges;
    return add_any(driver, node, graph, deps, count, params);
}
#else
cudaError_t sg_cudaGraphAddNode(const struct sg_rt_driver *driver, CUgraphNode *node, CUgraph graph,
                                const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t count,
                                struct cudaGraphNodeParams *params)
{
    (void)edges;
    return add_any(driver, node, graph, deps, count, params);
}
#endif

cudaError_t sg_cudaGraphNodeSetParams(const struct sg_rt_driver *driver, CUgraphNode node,
                                      struct cudaGraphNodeParams *params)
{
    CUgraphNodeParams now;
    cudaError_t error = any_params(driver, params, &now);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuGraphNodeSetParams(node, &now));
}

cudaError_t sg_cudaGraphExecNodeSetParams(const struct sg_rt_driver *driver, CUgraphExec exec, CUgraphNode node,
                                          struct cudaGraphNodeParams *params)
{
    CUgraphNodeParams now;
    cudaError_t error = any_params(driver, params, &now);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuGraphExecNodeSetParams(exec, node, &now));
}
