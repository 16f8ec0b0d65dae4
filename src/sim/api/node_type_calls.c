/* Nodes that are added and changed by their type (CUDA 12.2): each by the call for nodes of that type. */
#include "calls.h"
#include "graphs/choice.h"
#include "graphs/graph.h"

static CUDA_MEMSET_NODE_PARAMS set_params_of(const CUDA_MEMSET_NODE_PARAMS_v2 *params)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = params->dst, .pitch = params->pitch, .value = params->value,
        .elementSize = params->elementSize, .width = params->width, .height = params->height};
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges,
    size_t count, CUgraphNodeParams *params)
{
    SIM_ENTER_WITH(cuGraphAddNode_v2, node, graph, deps, edges, count, params);
    (void)edges;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cuGraphAddKernelNode_v2(node, graph, deps, count, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(node, graph, deps, count, &params->memcpy.copyParams, params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set = set_params_of(&params->memset);
        return cuGraphAddMemsetNode(node, graph, deps, count, &set, params->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        return cuGraphAddHostNode(node, graph, deps, count, &params->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE
                   ? cuGraphAddChildGraphNode(node, graph, deps, count, params->graph.graph)
                   : sim_graph_add_moved(node, graph, deps, count, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return cuGraphAddEmptyNode(node, graph, deps, count);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphAddEventWaitNode(node, graph, deps, count, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphAddEventRecordNode(node, graph, deps, count, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return cuGraphAddMemAllocNode(node, graph, deps, count, &params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return cuGraphAddMemFreeNode(node, graph, deps, count, params->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return cuGraphAddBatchMemOpNode(node, graph, deps, count, &params->memOp);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return sim_graph_add_choice(node, graph, deps, count, &params->conditional);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
    CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(node, graph, deps, NULL, count, params);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges,
    size_t count, CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(node, graph, deps, edges, count, params);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *params)
{
    return cuGraphNodeSetParams(node, params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    SIM_ENTER_WITH(cuGraphNodeSetParams, node, params);
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cuGraphKernelNodeSetParams_v2(node, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphMemcpyNodeSetParams(node, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set = set_params_of(&params->memset);
        return cuGraphMemsetNodeSetParams(node, &set);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        return cuGraphHostNodeSetParams(node, &params->host);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphEventWaitNodeSetEvent(node, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphEventRecordNodeSetEvent(node, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return cuGraphBatchMemOpNodeSetParams(node, &params->memOp);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    SIM_ENTER(cuGraphExecNodeSetParams);
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cuGraphExecKernelNodeSetParams_v2(exec, node, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphExecMemcpyNodeSetParams(exec, node, &params->memcpy.copyParams, params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set = set_params_of(&params->memset);
        return cuGraphExecMemsetNodeSetParams(exec, node, &set, params->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        return cuGraphExecHostNodeSetParams(exec, node, &params->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return cuGraphExecChildGraphNodeSetParams(exec, node, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphExecEventWaitNodeSetEvent(exec, node, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphExecEventRecordNodeSetEvent(exec, node, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return cuGraphExecBatchMemOpNodeSetParams(exec, node, &params->memOp);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
