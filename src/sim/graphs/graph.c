#include "graphs/graph.h"

#include <stdlib.h>

#include "graphs/condition.h"
#include "graphs/user_object.h"
#include "hazard/hazard.h"

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
    sim_condition_unref(choice->condition);
    free(choice);
}

CUresult sim_graph_new(CUgraph *ret)
{
    CUgraph graph = calloc(1, sizeof *graph);
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_handle_add(&graph->handle, SIM_KIND_GRAPH);
    *ret = graph;
    return CUDA_SUCCESS;
}

void sim_node_free(CUgraphNode node)
{
    sim_handle_drop(&node->handle);
    sim_step_drop(&node->step);
    sim_nodes_clear(&node->deps);
    free(node);
}

void sim_graph_free(CUgraph graph)
{
    for (unsigned i = 0; i < graph->nodes.count; i++)
        sim_node_free(graph->nodes.at[i]);
    sim_nodes_clear(&graph->nodes);
    sim_conditions_of_graph_gone(graph);
    sim_object_refs_drop(&graph->object_refs);
    sim_handle_drop(&graph->handle);
    free(graph);
}

CUresult sim_graph_get(CUgraph handle)
{
    return sim_handle_valid(handle, SIM_KIND_GRAPH) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool sim_graph_has_node(CUgraphNode node, CUgraph graph)
{
    return sim_handle_valid(node, SIM_KIND_NODE) && (!graph || node->graph == graph);
}

CUresult sim_graph_add(CUgraph graph, const CUgraphNode *deps, size_t count, struct sim_step step, CUgraphNode *ret)
{
    CUresult result = sim_graph_get(graph);
    if (count && !deps)
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = sim_graph_has_node(deps[i], graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    CUgraphNode node = result == CUDA_SUCCESS ? calloc(1, sizeof *node) : NULL;
    if (!node) {
        sim_step_drop(&step);
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    node->graph = graph;
    node->step = step;
    if (step.work)
        sim_hazard_settle(step.work);
    if (step.child)
        step.child->owner = node;
    for (unsigned i = 0; step.choice && i < step.choice->size; i++)
        step.choice->body[i]->owner = node;
    sim_handle_add(&node->handle, SIM_KIND_NODE);
    int error = 0;
    for (size_t i = 0; i < count && !error; i++)
        error = sim_nodes_add(&node->deps, deps[i]);
    if (error || sim_nodes_add(&graph->nodes, node) != 0) {
        sim_node_free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = node;
    return CUDA_SUCCESS;
}

/* Marks what is at or before `node`. */
static void node_mark_before(CUgraphNode node)
{
    if (node->mark)
        return;
    node->mark = true;
    for (unsigned i = 0; i < node->deps.count; i++)
        node_mark_before(node->deps.at[i]);
}

static void graph_unmark(CUgraph graph)
{
    for (unsigned i = 0; i < graph->nodes.count; i++)
        graph->nodes.at[i]->mark = false;
}

bool sim_graph_all_before(CUgraph graph, const struct sim_nodes *nodes, const struct sim_nodes *tips)
{
    graph_unmark(graph);
    for (unsigned i = 0; i < tips->count; i++)
        node_mark_before(tips->at[i]);
    bool all = true;
    for (unsigned i = 0; i < nodes->count; i++)
        all &= nodes->at[i]->mark;
    return all;
}

bool sim_graph_sort(CUgraph graph, struct sim_nodes *ret)
{
    struct sim_nodes sorted = {0};
    graph_unmark(graph);
    for (bool more = true; more;) {
        more = false;
        for (unsigned i = 0; i < graph->nodes.count; i++) {
            CUgraphNode node = graph->nodes.at[i];
            bool ready = !node->mark;
            for (unsigned d = 0; d < node->deps.count; d++)
                ready = ready && node->deps.at[d]->mark;
            if (!ready)
                continue;
            if (sim_nodes_add(&sorted, node) != 0) {
                sim_nodes_clear(&sorted);
                return false;
            }
            node->mark = more = true;
        }
    }
    if (sorted.count < graph->nodes.count) {
        sim_nodes_clear(&sorted);
        return false;
    }
    *ret = sorted;
    return true;
}

CUresult sim_graph_copy(CUgraph from, CUgraph *ret)
{
    CUgraph graph;
    CUresult result = sim_graph_new(&graph);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_object_refs_copy(from->object_refs, &graph->object_refs);
    for (unsigned i = 0; i < from->nodes.count && result == CUDA_SUCCESS; i++) {
        struct sim_step step;
        CUgraphNode node;
        result = from->nodes.at[i]->step.memory || from->nodes.at[i]->step.address
                     ? CUDA_ERROR_NOT_SUPPORTED /* graphs with memory nodes cannot be cloned */
                     : sim_step_copy(&from->nodes.at[i]->step, &step);
        if (result == CUDA_SUCCESS)
            result = sim_graph_add(graph, NULL, 0, step, &node);
        if (result == CUDA_SUCCESS)
            node->original = from->nodes.at[i];
    }
    /* Node i of the copy is that of node i, so an edge is found by its place. */
    for (unsigned i = 0; i < from->nodes.count && result == CUDA_SUCCESS; i++) {
        const struct sim_nodes *deps = &from->nodes.at[i]->deps;
        for (unsigned d = 0; d < deps->count && result == CUDA_SUCCESS; d++) {
            unsigned at = 0;
            while (from->nodes.at[at] != deps->at[d])
                at++;
            if (sim_nodes_add(&graph->nodes.at[i]->deps, graph->nodes.at[at]) != 0)
                result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (result == CUDA_SUCCESS)
        *ret = graph;
    else
        sim_graph_free(graph);
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
