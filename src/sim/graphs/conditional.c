/* Conditional nodes: values that kernels set, and graphs that are run as these say. */
#include <stdlib.h>

#include "extra.h"
#include "graphs/graph.h"

static struct sim_condition *conditions; /* all that there are */
static cuuint64_t last_handle;

static struct sim_condition *find(cuuint64_t handle)
{
    struct sim_condition *condition = conditions;
    while (condition && condition->handle != handle)
        condition = condition->next;
    return condition;
}

static void unref(struct sim_condition *condition)
{
    if (--condition->refs)
        return;
    struct sim_condition **link = &conditions;
    while (*link != condition)
        link = &(*link)->next;
    *link = condition->next;
    free(condition);
}

void sim_conditions_of_graph_gone(CUgraph graph)
{
    for (struct sim_condition *condition = conditions, *next; condition; condition = next) {
        next = condition->next;
        if (condition->graph != graph)
            continue;
        condition->graph = NULL;
        unref(condition);
    }
}

CUresult sim_choice_copy(const struct sim_choice *from, struct sim_choice **ret)
{
    struct sim_choice *choice = calloc(1, sizeof *choice + from->size * sizeof *choice->body);
    if (!choice)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *choice = (struct sim_choice){from->type, from->size, from->condition};
    choice->condition->refs++;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < from->size && result == CUDA_SUCCESS; i++)
        result = sim_graph_copy(from->body[i], &choice->body[i]);
    if (result == CUDA_SUCCESS)
        *ret = choice;
    else
        sim_choice_drop(choice);
    return result;
}

void sim_choice_drop(struct sim_choice *choice)
{
    for (unsigned i = 0; i < choice->size; i++) {
        if (choice->body[i])
            sim_graph_free(choice->body[i]);
    }
    unref(choice->condition);
    free(choice);
}

bool sim_choice_is_runnable(const struct sim_choice *choice)
{
    for (unsigned i = 0; i < choice->size; i++) {
        for (unsigned k = 0; k < choice->body[i]->nodes.count; k++) {
            const struct sim_step *step = &choice->body[i]->nodes.at[k]->step;
            switch (step->type) {
            case CU_GRAPH_NODE_TYPE_KERNEL:
            case CU_GRAPH_NODE_TYPE_MEMCPY:
            case CU_GRAPH_NODE_TYPE_MEMSET:
            case CU_GRAPH_NODE_TYPE_EMPTY:
            case CU_GRAPH_NODE_TYPE_GRAPH:
                continue;
            case CU_GRAPH_NODE_TYPE_CONDITIONAL:
                if (sim_choice_is_runnable(step->choice))
                    continue;
                return false;
            default:
                return false;
            }
        }
    }
    return true;
}

void sim_choice_begin(const struct sim_choice *choice)
{
    if (choice->condition->assigned)
        choice->condition->value = choice->condition->at_launch;
}

CUgraph sim_choice_next(const struct sim_choice *choice, bool first)
{
    unsigned value = choice->condition->value;
    switch (choice->type) {
    case CU_GRAPH_COND_TYPE_IF:
        return !first ? NULL : value ? choice->body[0] : choice->size > 1 ? choice->body[1] : NULL;
    case CU_GRAPH_COND_TYPE_WHILE:
        return value ? choice->body[0] : NULL;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return first && value < choice->size ? choice->body[value] : NULL;
    }
    return NULL;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
    unsigned int at_launch, unsigned int flags)
{
    SIM_ENTER_WITH(cuGraphConditionalHandleCreate, handle, graph, context, at_launch, flags);
    if (!handle || flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    (void)context;
    sim_lock();
    CUresult result = sim_graph_get(graph);
    struct sim_condition *made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made) {
        *made = (struct sim_condition){.handle = ++last_handle, .graph = graph, .value = at_launch,
            .at_launch = at_launch, .assigned = flags != 0, .refs = 1, .next = conditions};
        conditions = made;
        *handle = made->handle;
    } else if (result == CUDA_SUCCESS) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_unlock();
    return result;
}

static bool has_size(CUgraphConditionalNodeType type, unsigned size)
{
    switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
        return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return size > 0;
    }
    return false;
}

CUresult sim_graph_add_choice(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
    CUDA_CONDITIONAL_NODE_PARAMS *params)
{
    if (!node || !has_size(params->type, params->size))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_condition *condition = find(params->handle);
    struct sim_choice *choice = NULL;
    CUresult result = condition && condition->graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !(choice = calloc(1, sizeof *choice + params->size * sizeof *choice->body)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        *choice = (struct sim_choice){params->type, params->size, condition};
        condition->refs++;
    }
    for (unsigned i = 0; i < params->size && result == CUDA_SUCCESS; i++)
        result = sim_graph_new(&choice->body[i]);
    if (result == CUDA_SUCCESS)
        result = sim_graph_add(graph, deps, count,
            (struct sim_step){.type = CU_GRAPH_NODE_TYPE_CONDITIONAL, .choice = choice}, node);
    else if (choice)
        sim_choice_drop(choice);
    if (result == CUDA_SUCCESS)
        params->phGraph_out = choice->body;
    sim_unlock();
    return result;
}

void segalloc_sim_condition(uint64_t handle, unsigned value)
{
    sim_lock();
    struct sim_condition *condition = find(handle);
    if (condition)
        condition->value = value;
    sim_unlock();
}
