/* What nodes do: how they are added, asked and changed. */
#include "graphs/graph.h"
#include "hazard/hazard.h"

#include <stdlib.h>

CUresult sim_step_copy(const struct sim_step *from, struct sim_step *ret)
{
    struct sim_step step = *from;
    if (from->child) {
        CUresult result = sim_graph_copy(from->child, &step.child);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (from->choice) {
        CUresult result = sim_choice_copy(from->choice, &step.choice);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (from->work && !(step.work = sim_work_copy(from->work)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (from->event)
        sim_event_ref(from->event);
    if (from->memory)
        from->memory->refs++;
    *ret = step;
    return CUDA_SUCCESS;
}

void sim_step_drop(struct sim_step *step)
{
    if (step->work)
        sim_work_free(step->work);
    if (step->event)
        sim_event_unref(step->event);
    if (step->child)
        sim_graph_free(step->child);
    if (step->choice)
        sim_choice_drop(step->choice);
    if (step->memory)
        sim_graph_memory_unref(step->memory);
}

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUresult made,
    struct sim_step step)
{
    if (made == CUDA_SUCCESS && !node) {
        sim_step_drop(&step);
        made = CUDA_ERROR_INVALID_VALUE;
    }
    return made == CUDA_SUCCESS ? sim_graph_add(graph, deps, count, step, node) : made;
}

/* Replaces what a node does by another step of its type; takes the step in any case. */
static CUresult replace(CUgraphNode node, CUresult made, struct sim_step step)
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

static bool is(CUgraphNode node, CUgraphNodeType type, const void *out)
{
    return out && sim_handle_valid(node, SIM_KIND_NODE) && node->step.type == type;
}

static CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS *params, struct sim_work **ret)
{
    return params ? sim_kernel_work(params, ret) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult make_copy(const CUDA_MEMCPY3D *params, struct sim_work **ret)
{
    return params ? sim_copy_work(params, ret) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult make_set(const CUDA_MEMSET_NODE_PARAMS *params, struct sim_work **ret)
{
    return params ? sim_set_work(params, ret) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult make_host(const CUDA_HOST_NODE_PARAMS *params, struct sim_work **ret)
{
    return params && params->fn ? sim_host_work(params, ret) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult make_words(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct sim_work **ret)
{
    return params ? sim_words_work(params, ret) : CUDA_ERROR_INVALID_VALUE;
}

/* For a node that does a piece of work: `name`_add, _get, _set and _exec_set, by its parameters. Of the context that
   some are given, only the device that makes a copy would matter, and that is the launching stream's. */
#define WORK_NODE(name, params_type, node_type)                                                                       \
    static CUresult name##_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,               \
        const params_type *params)                                                                                    \
    {                                                                                                                 \
        sim_lock();                                                                                                   \
        struct sim_step step = {.type = node_type};                                                                   \
        CUresult result = make_##name(params, &step.work);                                                            \
        result = add(node, graph, deps, count, result, step);                                                         \
        sim_unlock();                                                                                                 \
        return result;                                                                                                \
    }                                                                                                                 \
    static CUresult name##_get(CUgraphNode node, params_type *params)                                                 \
    {                                                                                                                 \
        sim_lock();                                                                                                   \
        bool valid = is(node, node_type, params);                                                                     \
        if (valid)                                                                                                    \
            sim_##name##_params(node->step.work, params);                                                             \
        sim_unlock();                                                                                                 \
        return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;                                                       \
    }                                                                                                                 \
    static CUresult name##_set(CUgraphNode node, const params_type *params)                                           \
    {                                                                                                                 \
        sim_lock();                                                                                                   \
        struct sim_step step = {.type = node_type};                                                                   \
        CUresult result = make_##name(params, &step.work);                                                            \
        result = replace(node, result, step);                                                                         \
        sim_unlock();                                                                                                 \
        return result;                                                                                                \
    }                                                                                                                 \
    static CUresult name##_exec_set(CUgraphExec exec, CUgraphNode node, const params_type *params)                    \
    {                                                                                                                 \
        sim_lock();                                                                                                   \
        struct sim_step step = {.type = node_type};                                                                   \
        CUresult result = make_##name(params, &step.work);                                                            \
        if (result == CUDA_SUCCESS)                                                                                   \
            result = sim_image_replace(exec, node, step);                                                             \
        sim_unlock();                                                                                                 \
        return result;                                                                                                \
    }

WORK_NODE(kernel, CUDA_KERNEL_NODE_PARAMS, CU_GRAPH_NODE_TYPE_KERNEL)
WORK_NODE(copy, CUDA_MEMCPY3D, CU_GRAPH_NODE_TYPE_MEMCPY)
WORK_NODE(set, CUDA_MEMSET_NODE_PARAMS, CU_GRAPH_NODE_TYPE_MEMSET)
WORK_NODE(host, CUDA_HOST_NODE_PARAMS, CU_GRAPH_NODE_TYPE_HOST)
WORK_NODE(words, CUDA_BATCH_MEM_OP_NODE_PARAMS, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)

/* The older form of a kernel's parameters names no context. */
static CUDA_KERNEL_NODE_PARAMS newer(const CUDA_KERNEL_NODE_PARAMS_v1 *old)
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
    CUDA_KERNEL_NODE_PARAMS now = params ? newer(params) : (CUDA_KERNEL_NODE_PARAMS){0};
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
    CUDA_KERNEL_NODE_PARAMS now = params ? newer(params) : (CUDA_KERNEL_NODE_PARAMS){0};
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
    CUDA_KERNEL_NODE_PARAMS now = params ? newer(params) : (CUDA_KERNEL_NODE_PARAMS){0};
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
    CUresult result = add(node, graph, deps, count, CUDA_SUCCESS, (struct sim_step){.type = CU_GRAPH_NODE_TYPE_EMPTY});
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
    result = add(node, graph, deps, count, result, step);
    sim_unlock();
    return result;
}

CUresult sim_graph_add_moved(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUgraph child)
{
    sim_lock();
    CUresult result = sim_graph_get(child);
    if (result == CUDA_SUCCESS && (!node || sim_graph_get(graph) != CUDA_SUCCESS || child->owner || child->capturing))
        result = CUDA_ERROR_INVALID_VALUE;
    for (CUgraph above = graph; result == CUDA_SUCCESS && above; above = above->owner ? above->owner->graph : NULL)
        result = above == child ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    /* Only once there is a node: one that can't be made would take the child with it. */
    if (result == CUDA_SUCCESS)
        result = sim_graph_add(graph, deps, count, (struct sim_step){.type = CU_GRAPH_NODE_TYPE_EMPTY}, node);
    if (result == CUDA_SUCCESS) {
        (*node)->step = (struct sim_step){.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = child};
        child->owner = *node;
    }
    sim_unlock();
    return result;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child)
{
    SIM_ENTER(cuGraphChildGraphNodeGetGraph);
    sim_lock();
    bool valid = is(node, CU_GRAPH_NODE_TYPE_GRAPH, child);
    if (valid)
        *child = node->step.child;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult event_step(CUevent event, CUgraphNodeType type, struct sim_step *ret)
{
    CUresult result = sim_event_get(event);
    if (result == CUDA_SUCCESS) {
        sim_event_ref(event);
        *ret = (struct sim_step){.type = type, .event = event};
    }
    return result;
}

static CUresult add_event(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUevent event,
    CUgraphNodeType type)
{
    sim_lock();
    struct sim_step step;
    CUresult result = event_step(event, type, &step);
    if (result == CUDA_SUCCESS)
        result = add(node, graph, deps, count, result, step);
    sim_unlock();
    return result;
}

static CUresult set_event(CUgraphNode node, CUevent event, CUgraphNodeType type)
{
    sim_lock();
    struct sim_step step;
    CUresult result = event_step(event, type, &step);
    if (result == CUDA_SUCCESS)
        result = replace(node, result, step);
    sim_unlock();
    return result;
}

static CUresult get_event(CUgraphNode node, CUevent *event, CUgraphNodeType type)
{
    sim_lock();
    bool valid = is(node, type, event);
    if (valid)
        *event = node->step.event;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUevent
    event)
{
    SIM_ENTER_WITH(cuGraphAddEventRecordNode, node, graph, deps, count);
    return add_event(node, graph, deps, count, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    SIM_ENTER(cuGraphEventRecordNodeGetEvent);
    return get_event(node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    SIM_ENTER(cuGraphEventRecordNodeSetEvent);
    return set_event(node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUevent
    event)
{
    SIM_ENTER_WITH(cuGraphAddEventWaitNode, node, graph, deps, count);
    return add_event(node, graph, deps, count, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    SIM_ENTER(cuGraphEventWaitNodeGetEvent);
    return get_event(node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    SIM_ENTER(cuGraphEventWaitNodeSetEvent);
    return set_event(node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

static CUresult set_exec_event(CUgraphExec exec, CUgraphNode node, CUevent event, CUgraphNodeType type)
{
    sim_lock();
    struct sim_step step;
    CUresult result = event_step(event, type, &step);
    if (result == CUDA_SUCCESS)
        result = sim_image_replace(exec, node, step);
    sim_unlock();
    return result;
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    SIM_ENTER(cuGraphExecEventRecordNodeSetEvent);
    return set_exec_event(exec, node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    SIM_ENTER(cuGraphExecEventWaitNodeSetEvent);
    return set_exec_event(exec, node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}
