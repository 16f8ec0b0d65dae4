#include "graphs/choice.h"

#include <stdlib.h>

#include "graphs/condition.h"

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

static bool choice_has_size(CUgraphConditionalNodeType type, unsigned size)
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
    if (!node || !choice_has_size(params->type, params->size))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_condition *condition = sim_condition_find(params->handle);
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
