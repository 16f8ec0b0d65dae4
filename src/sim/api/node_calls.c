/* Entry points of nodes: how they are added, asked and changed. */
#include <string.h>

#include "calls.h"
#include "graphs/graph.h"
#include "graphs/image.h"
#include "hazard/hazard.h"
#include "streams/event.h"
#include "streams/work.h"
#include "work/copy.h"
#include "work/fill.h"
#include "work/host_call.h"
#include "work/kernel_launch.h"
#include "work/memory_words.h"

static CUresult node_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUresult made,
    struct sim_step step)
{
    if (made == CUDA_SUCCESS && !node) {
        sim_step_drop(&step);
        made = CUDA_ERROR_INVALID_VALUE;
    }
    return made == CUDA_SUCCESS ? sim_graph_add(graph, deps, count, step, node) : made;
}

/* Replaces what a node does by another step of its type; takes the step in any case. */
static CUresult node_replace(CUgraphNode node, CUresult made, struct sim_step step)
{
    if (made != CUDA_SUCCESS)
        return made;
    if (!sim_handle_valid(node, SIM_KIND_NODE) || node->step.type != step.type) {
        sim_step_drop(&step);
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_step_drop(&node->step);
    node->step = step;
    if (step.work)
        sim_hazard_settle(step.work);
    return CUDA_SUCCESS;
}

static bool node_is(CUgraphNode node, CUgraphNodeType type, const void *out)
{
    return out && sim_handle_valid(node, SIM_KIND_NODE) && node->step.type == type;
}

static CUresult node_make_kernel(const CUDA_KERNEL_NODE_PARAMS *params, struct sim_work **ret)
{
    return params ? sim_kernel_work(params, ret) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult node_make_copy(const CUDA_MEMCPY3D *params, struct sim_work **ret)
{
    return params ? sim_copy_work(params, ret) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult node_make_set(const CUDA_MEMSET_NODE_PARAMS *params, struct sim_work **ret)
{
    return params ? sim_set_work(params, ret) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult node_make_host(const CUDA_HOST_NODE_PARAMS *params, struct sim_work **ret)
{
    return params && params->fn ? sim_host_work(params, ret) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult node_make_words(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct sim_work **ret)
{
    return params ? sim_words_work(params, ret) : CUDA_ERROR_INVALID_VALUE;
}

/* For a node that does a piece of work: `name`_add, _get, _set and _exec_set, by its parameters. The context
   that some are given changes nothing: the device that makes a copy is the launching stream's. */
#define WORK_NODE(name, params_type, node_type)                                                         \
    static CUresult name##_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, \
        const params_type *params)                                                                      \
    {                                                                                                   \
        sim_lock();                                                                                     \
        struct sim_step step = {.type = node_type};                                                     \
        CUresult result = node_make_##name(params, &step.work);                                         \
        result = node_add(node, graph, deps, count, result, step);                                      \
        sim_unlock();                                                                                   \
        return result;                                                                                  \
    }                                                                                                   \
    static CUresult name##_get(CUgraphNode node, params_type *params)                                   \
    {                                                                                                   \
        sim_lock();                                                                                     \
        bool valid = node_is(node, node_type, params);                                                  \
        if (valid)                                                                                      \
            sim_##name##_params(node->step.work, params);                                               \
        sim_unlock();                                                                                   \
        return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;                                         \
    }                                                                                                   \
    static CUresult name##_set(CUgraphNode node, const params_type *params)                             \
    {                                                                                                   \
        sim_lock();                                                                                     \
        struct sim_step step = {.type = node_type};                                                     \
        CUresult result = node_make_##name(params, &step.work);                                         \
        result = node_replace(node, result, step);                                                      \
        sim_unlock();                                                                                   \
        return result;                                                                                  \
    }                                                                                                   \
    static CUresult name##_exec_set(CUgraphExec exec, CUgraphNode node, const params_type *params)      \
    {                                                                                                   \
        sim_lock();                                                                                     \
        struct sim_step step = {.type = node_type};                                                     \
        CUresult result = node_make_##name(params, &step.work);                                         \
        if (result == CUDA_SUCCESS)                                                                     \
            result = sim_image_replace(exec, node, step);                                               \
        sim_unlock();                                                                                   \
        return result;                                                                                  \
    }

WORK_NODE(kernel, CUDA_KERNEL_NODE_PARAMS, CU_GRAPH_NODE_TYPE_KERNEL)
WORK_NODE(copy, CUDA_MEMCPY3D, CU_GRAPH_NODE_TYPE_MEMCPY)
WORK_NODE(set, CUDA_MEMSET_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEMSET)
WORK_NODE(host, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST)
WORK_NODE(words, CUDA_BATCH_MEM_OP_NODE_PARAMS, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)

/* The older form of a kernel's parameters names no context. */
static CUDA_KERNEL_NODE_PARAMS kernel_params_newer(const CUDA_KERNEL_NODE_PARAMS_v1 *old)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = old->func, .gridDimX = old->gridDimX, .gridDimY = old->gridDimY,
        .gridDimZ = old->gridDimZ, .blockDimX = old->blockDimX, .blockDimY = old->blockDimY,
        .blockDimZ = old->blockDimZ, .sharedMemBytes = old->sharedMemBytes, .kernelParams = old->kernelParams,
        .extra = old->extra};
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, const
    CUDA_KERNEL_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphAddKernelNode_v2);
    return kernel_add(node, graph, deps, count, params);
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, const
    CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    SIM_ENTER_WITH(cuGraphAddKernelNode, node);
    CUDA_KERNEL_NODE_PARAMS now = params ? kernel_params_newer(params) : (CUDA_KERNEL_NODE_PARAMS){0};
    return kernel_add(node, graph, deps, count, params ? &now : NULL);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    SIM_ENTER_WITH(cuGraphKernelNodeGetParams_v2, node, params);
    return kernel_get(node, params);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    SIM_ENTER_WITH(cuGraphKernelNodeGetParams, node, params);
    CUDA_KERNEL_NODE_PARAMS now;
    CUresult result = params ? kernel_get(node, &now) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        memcpy(params, &now, sizeof *params); /* its members come first */
    return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    SIM_ENTER_WITH(cuGraphKernelNodeSetParams_v2, node);
    return kernel_set(node, params);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    SIM_ENTER_WITH(cuGraphKernelNodeSetParams, node);
    CUDA_KERNEL_NODE_PARAMS now = params ? kernel_params_newer(params) : (CUDA_KERNEL_NODE_PARAMS){0};
    return kernel_set(node, params ? &now : NULL);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphExecKernelNodeSetParams_v2);
    return kernel_exec_set(exec, node, params);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    SIM_ENTER(cuGraphExecKernelNodeSetParams);
    CUDA_KERNEL_NODE_PARAMS now = params ? kernel_params_newer(params) : (CUDA_KERNEL_NODE_PARAMS){0};
    return kernel_exec_set(exec, node, params ? &now : NULL);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, const
    CUDA_MEMCPY3D *params, CUcontext context)
{
    SIM_ENTER(cuGraphAddMemcpyNode);
    (void)context;
    return copy_add(node, graph, deps, count, params);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *params)
{
    SIM_ENTER(cuGraphMemcpyNodeGetParams);
    return copy_get(node, params);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
    SIM_ENTER(cuGraphMemcpyNodeSetParams);
    return copy_set(node, params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext
    context)
{
    SIM_ENTER_WITH(cuGraphExecMemcpyNodeSetParams, exec, node, params, context);
    (void)context;
    return copy_exec_set(exec, node, params);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, const
    CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    SIM_ENTER(cuGraphAddMemsetNode);
    (void)context;
    return set_add(node, graph, deps, count, params);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphMemsetNodeGetParams);
    return set_get(node, params);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphMemsetNodeSetParams);
    return set_set(node, params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params,
    CUcontext context)
{
    SIM_ENTER_WITH(cuGraphExecMemsetNodeSetParams, exec, node, params, context);
    (void)context;
    return set_exec_set(exec, node, params);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, const
    CUDA_HOST_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphAddHostNode);
    return host_add(node, graph, deps, count, params);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphHostNodeGetParams);
    return host_get(node, params);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphHostNodeSetParams);
    return host_set(node, params);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphExecHostNodeSetParams);
    return host_exec_set(exec, node, params);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, const
    CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphAddBatchMemOpNode);
    return words_add(node, graph, deps, count, params);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphBatchMemOpNodeGetParams);
    return words_get(node, params);
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphBatchMemOpNodeSetParams);
    return words_set(node, params);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS
    *params)
{
    SIM_ENTER(cuGraphExecBatchMemOpNodeSetParams);
    return words_exec_set(exec, node, params);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count)
{
    SIM_ENTER_WITH(cuGraphAddEmptyNode, node, graph, deps, count);
    sim_lock();
    CUresult result =
        node_add(node, graph, deps, count, CUDA_SUCCESS, (struct sim_step){.type = CU_GRAPH_NODE_TYPE_EMPTY});
    sim_unlock();
    return result;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUgraph
    child)
{
    SIM_ENTER(cuGraphAddChildGraphNode);
    sim_lock();
    struct sim_step step = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    CUresult result = sim_graph_get(child);
    if (result == CUDA_SUCCESS)
        result = sim_graph_copy(child, &step.child);
    result = node_add(node, graph, deps, count, result, step);
    sim_unlock();
    return result;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child)
{
    SIM_ENTER(cuGraphChildGraphNodeGetGraph);
    sim_lock();
    bool valid = node_is(node, CU_GRAPH_NODE_TYPE_GRAPH, child);
    if (valid)
        *child = node->step.child;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult node_event_step(CUevent event, CUgraphNodeType type, struct sim_step *ret)
{
    CUevent found;
    CUresult result = sim_event_get(event, &found);
    if (result == CUDA_SUCCESS) {
        sim_event_ref(event);
        *ret = (struct sim_step){.type = type, .event = event};
    }
    return result;
}

static CUresult node_add_event(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUevent event,
    CUgraphNodeType type)
{
    sim_lock();
    struct sim_step step;
    CUresult result = node_event_step(event, type, &step);
    if (result == CUDA_SUCCESS)
        result = node_add(node, graph, deps, count, result, step);
    sim_unlock();
    return result;
}

static CUresult node_set_event(CUgraphNode node, CUevent event, CUgraphNodeType type)
{
    sim_lock();
    struct sim_step step;
    CUresult result = node_event_step(event, type, &step);
    if (result == CUDA_SUCCESS)
        result = node_replace(node, result, step);
    sim_unlock();
    return result;
}

static CUresult node_get_event(CUgraphNode node, CUevent *event, CUgraphNodeType type)
{
    sim_lock();
    bool valid = node_is(node, type, event);
    if (valid)
        *event = node->step.event;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUevent
    event)
{
    SIM_ENTER_WITH(cuGraphAddEventRecordNode, node, graph, deps, count);
    return node_add_event(node, graph, deps, count, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    SIM_ENTER(cuGraphEventRecordNodeGetEvent);
    return node_get_event(node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    SIM_ENTER(cuGraphEventRecordNodeSetEvent);
    return node_set_event(node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUevent
    event)
{
    SIM_ENTER_WITH(cuGraphAddEventWaitNode, node, graph, deps, count);
    return node_add_event(node, graph, deps, count, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    SIM_ENTER(cuGraphEventWaitNodeGetEvent);
    return node_get_event(node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    SIM_ENTER(cuGraphEventWaitNodeSetEvent);
    return node_set_event(node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

static CUresult node_set_exec_event(CUgraphExec exec, CUgraphNode node, CUevent event, CUgraphNodeType type)
{
    sim_lock();
    struct sim_step step;
    CUresult result = node_event_step(event, type, &step);
    if (result == CUDA_SUCCESS)
        result = sim_image_replace(exec, node, step);
    sim_unlock();
    return result;
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    SIM_ENTER(cuGraphExecEventRecordNodeSetEvent);
    return node_set_exec_event(exec, node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    SIM_ENTER(cuGraphExecEventWaitNodeSetEvent);
    return node_set_exec_event(exec, node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}
