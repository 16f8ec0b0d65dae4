/* Executables: instantiated from graphs, launched into streams, updated. */
#include <stdlib.h>

#include "calls.h"
#include "device/context.h"
#include "graphs/graph.h"
#include "graphs/image.h"
#include "hazard/order.h"
#include "streams/nodes.h"
#include "streams/stream.h"
#include "work/graph_launch.h"
#include "work/program_stream.h"

static CUresult exec_instantiate(CUgraphExec *ret, CUgraph graph, cuuint64_t flags)
{
    const cuuint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                             CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (!ret || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_lock();
    CUgraphExec exec = NULL;
    CUresult result = sim_graph_get(graph);
    if (result == CUDA_SUCCESS && !(exec = calloc(1, sizeof *exec)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = sim_image_new(graph, &exec->image);
    if (result == CUDA_SUCCESS) {
        exec->flags = flags;
        sim_handle_add(&exec->handle, SIM_KIND_EXEC);
        *ret = exec;
    } else {
        free(exec);
    }
    sim_unlock();
    return result;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    SIM_ENTER_WITH(cuGraphInstantiateWithFlags, exec, graph, flags);
    return exec_instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
    SIM_ENTER(cuGraphInstantiate_v2);
    if (error_node)
        *error_node = NULL;
    if (log && log_bytes)
        *log = '\0';
    return exec_instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
    return cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    SIM_ENTER_WITH(cuGraphInstantiateWithParams, exec, graph, params);
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = exec_instantiate(exec, graph, params->flags);
    params->hErrNode_out = NULL;
    params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return cuGraphInstantiateWithParams(exec, graph, params);
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    SIM_ENTER(cuGraphExecGetFlags);
    sim_lock();
    bool valid = flags && sim_handle_valid(exec, SIM_KIND_EXEC);
    if (valid)
        *flags = exec->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    SIM_ENTER(cuGraphExecDestroy);
    sim_lock();
    bool valid = sim_handle_valid(exec, SIM_KIND_EXEC);
    if (valid) {
        sim_handle_drop(&exec->handle);
        sim_image_unref(exec->image); /* a launch under way has its own reference */
        if (exec->last)
            sim_stream_unref(exec->last);
        sim_clock_clear(&exec->clock);
        free(exec);
    }
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    SIM_ENTER_WITH(cuGraphLaunch, exec, handle);
    sim_lock();
    CUstream stream;
    CUresult result = sim_handle_valid(exec, SIM_KIND_EXEC) ? sim_stream_get(handle, &stream) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_graph_launch(exec, stream);
    sim_unlock();
    return result;
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return cuGraphLaunch(exec, sim_per_thread(stream));
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
    SIM_ENTER_WITH(cuGraphUpload, exec, handle);
    sim_lock();
    CUstream stream;
    CUresult result = sim_handle_valid(exec, SIM_KIND_EXEC) ? sim_stream_get(handle, &stream) : CUDA_ERROR_INVALID_VALUE;
    sim_unlock();
    return result;
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    return cuGraphUpload(exec, sim_per_thread(stream));
}

/* The nodes of a child become those of another graph of the same shape. */
static CUresult exec_replace_child(CUgraphExec exec, const struct sim_nodes *now, const struct sim_nodes *then)
{
    CUresult result = now->count == then->count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < now->count && result == CUDA_SUCCESS; i++) {
        const struct sim_step *step = &then->at[i]->step;
        if (now->at[i]->step.type != step->type || now->at[i]->deps.count != then->at[i]->deps.count)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (step->child || step->memory)
            result = CUDA_ERROR_NOT_SUPPORTED;
    }
    for (unsigned i = 0; i < now->count && result == CUDA_SUCCESS; i++) {
        struct sim_step step;
        result = sim_step_copy(&then->at[i]->step, &step);
        if (result == CUDA_SUCCESS)
            result = sim_image_replace(exec, now->at[i], step);
    }
    return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    SIM_ENTER(cuGraphExecChildGraphNodeSetParams);
    sim_lock();
    struct sim_nodes now = {0}, then = {0};
    CUresult result = sim_graph_get(child);
    if (result == CUDA_SUCCESS &&
        (!sim_handle_valid(exec, SIM_KIND_EXEC) || !sim_handle_valid(node, SIM_KIND_NODE) || !node->step.child))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && (!sim_graph_sort(node->step.child, &now) || !sim_graph_sort(child, &then)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = exec_replace_child(exec, &now, &then);
    sim_nodes_clear(&now);
    sim_nodes_clear(&then);
    sim_unlock();
    return result;
}

static CUgraphExecUpdateResult image_compare(const struct sim_image *now, const struct sim_image *then, CUgraphNode *ret)
{
    if (now->count != then->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (unsigned i = 0; i < now->count; i++) {
        *ret = then->at[i].node;
        if (now->at[i].step.type != then->at[i].step.type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (then->at[i].step.memory)
            return CU_GRAPH_EXEC_UPDATE_ERROR; /* memory nodes cannot be updated */
    }
    *ret = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult exec_update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult *ret_result, CUgraphNode *ret_node)
{
    struct sim_image *image;
    sim_lock();
    CUresult result = sim_handle_valid(exec, SIM_KIND_EXEC) ? sim_graph_get(graph) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_image_new(graph, &image);
    if (result == CUDA_SUCCESS) {
        *ret_result = image_compare(exec->image, image, ret_node);
        if (*ret_result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
            /* The handles of the nodes stay those that it was instantiated with. */
            for (unsigned i = 0; i < image->count; i++)
                image->at[i].node = exec->image->at[i].node;
            struct sim_image *before = exec->image;
            exec->image = image;
            image = before;
        } else {
            result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
        sim_image_unref(image);
    }
    sim_unlock();
    return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    SIM_ENTER(cuGraphExecUpdate_v2);
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    return exec_update(exec, graph, &info->result, &info->errorNode);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result)
{
    SIM_ENTER(cuGraphExecUpdate);
    if (!error_node || !result)
        return CUDA_ERROR_INVALID_VALUE;
    *error_node = NULL;
    *result = CU_GRAPH_EXEC_UPDATE_ERROR;
    return exec_update(exec, graph, result, error_node);
}
