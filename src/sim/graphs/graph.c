/* Graphs and their edges. */
#include "graphs/graph.h"
#include "hazard/hazard.h"

#include <errno.h>
#include <stdlib.h>

int sim_nodes_add(struct sim_nodes *nodes, CUgraphNode node)
{
    for (unsigned i = 0; i < nodes->count; i++) {
        if (nodes->at[i] == node)
            return 0;
    }
    if (nodes->count == nodes->room) {
        unsigned room = nodes->room ? 2 * nodes->room : 4;
        CUgraphNode *grown = realloc(nodes->at, room * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        nodes->at = grown;
        nodes->room = room;
    }
    nodes->at[nodes->count++] = node;
    return 0;
}

void sim_nodes_clear(struct sim_nodes *nodes)
{
    free(nodes->at);
    *nodes = (struct sim_nodes){0};
}

int sim_nodes_copy(struct sim_nodes *to, const struct sim_nodes *from)
{
    struct sim_nodes copy = {0};
    if (from->count) {
        copy.at = malloc(from->count * sizeof *copy.at);
        if (!copy.at)
            return -ENOMEM;
        memcpy(copy.at, from->at, from->count * sizeof *copy.at);
        copy.count = copy.room = from->count;
    }
    free(to->at);
    *to = copy;
    return 0;
}

static void remove_node(struct sim_nodes *nodes, CUgraphNode node)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < nodes->count; i++) {
        if (nodes->at[i] != node)
            nodes->at[kept++] = nodes->at[i];
    }
    nodes->count = kept;
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

static void free_node(CUgraphNode node)
{
    sim_handle_drop(&node->handle);
    sim_step_drop(&node->step);
    sim_nodes_clear(&node->deps);
    free(node);
}

void sim_graph_free(CUgraph graph)
{
    for (unsigned i = 0; i < graph->nodes.count; i++)
        free_node(graph->nodes.at[i]);
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

static bool node_of(CUgraphNode node, CUgraph graph)
{
    return sim_handle_valid(node, SIM_KIND_NODE) && (!graph || node->graph == graph);
}

CUresult sim_graph_add(CUgraph graph, const CUgraphNode *deps, size_t count, struct sim_step step, CUgraphNode *ret)
{
    CUresult result = sim_graph_get(graph);
    if (count && !deps)
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = node_of(deps[i], graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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
        free_node(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = node;
    return CUDA_SUCCESS;
}

/* Marks what is at or before `node`. */
static void mark_before(CUgraphNode node)
{
    if (node->mark)
        return;
    node->mark = true;
    for (unsigned i = 0; i < node->deps.count; i++)
        mark_before(node->deps.at[i]);
}

static void unmark(CUgraph graph)
{
    for (unsigned i = 0; i < graph->nodes.count; i++)
        graph->nodes.at[i]->mark = false;
}

bool sim_graph_all_before(CUgraph graph, const struct sim_nodes *nodes, const struct sim_nodes *tips)
{
    unmark(graph);
    for (unsigned i = 0; i < tips->count; i++)
        mark_before(tips->at[i]);
    bool all = true;
    for (unsigned i = 0; i < nodes->count; i++)
        all &= nodes->at[i]->mark;
    return all;
}

bool sim_graph_sort(CUgraph graph, struct sim_nodes *ret)
{
    struct sim_nodes sorted = {0};
    unmark(graph);
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

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    SIM_ENTER(cuGraphCreate);
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_graph_new(graph);
    sim_unlock();
    return result;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    SIM_ENTER(cuGraphDestroy);
    sim_lock();
    CUresult result = sim_graph_get(graph);
    if (result == CUDA_SUCCESS && (graph->owner || graph->capturing))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        sim_graph_free(graph);
    sim_unlock();
    return result;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
    SIM_ENTER(cuGraphClone);
    if (!clone)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_graph_get(graph);
    if (result == CUDA_SUCCESS)
        result = sim_graph_copy(graph, clone);
    sim_unlock();
    return result;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone)
{
    SIM_ENTER(cuGraphNodeFindInClone);
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_graph_get(clone);
    CUgraphNode found = NULL;
    for (unsigned i = 0; result == CUDA_SUCCESS && i < clone->nodes.count; i++) {
        if (clone->nodes.at[i]->original == original)
            found = clone->nodes.at[i];
    }
    if (found)
        *node = found;
    sim_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    SIM_ENTER(cuGraphNodeGetType);
    sim_lock();
    bool valid = type && node_of(node, NULL);
    if (valid)
        *type = node->step.type;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* How every query of nodes or edges answers: with NULL how many there are; else as many as there is room for, NULL
   where there are fewer, and how many were given. */
struct answer {
    CUgraphNode *nodes, *to;
    CUgraphEdgeData *edges;
    size_t room, found;
};

static void give(struct answer *answer, CUgraphNode node, CUgraphNode to)
{
    size_t at = answer->found++;
    if (at >= answer->room)
        return;
    if (answer->nodes)
        answer->nodes[at] = node;
    if (answer->to)
        answer->to[at] = to;
    if (answer->edges)
        answer->edges[at] = (CUgraphEdgeData){.type = 0};
}

static void close_answer(struct answer *answer, size_t *count)
{
    for (size_t i = answer->found; answer->nodes && i < answer->room; i++)
        answer->nodes[i] = NULL;
    *count = answer->nodes && answer->found > answer->room ? answer->room : answer->found;
}

enum question { NODES, ROOTS, EDGES, BEFORE, AFTER };

static CUresult ask(enum question question, CUgraph graph, CUgraphNode node, struct answer answer, size_t *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    answer.room = answer.nodes ? *count : 0;
    sim_lock();
    bool valid = question < BEFORE ? sim_handle_valid(graph, SIM_KIND_GRAPH) : node_of(node, NULL);
    if (valid && question >= BEFORE)
        graph = node->graph;
    for (unsigned i = 0; valid && i < graph->nodes.count; i++) {
        CUgraphNode at = graph->nodes.at[i];
        if (question == NODES || (question == ROOTS && !at->deps.count))
            give(&answer, at, NULL);
        for (unsigned d = 0; d < at->deps.count; d++) {
            if (question == EDGES)
                give(&answer, at->deps.at[d], at);
            else if (question == BEFORE && at == node)
                give(&answer, at->deps.at[d], NULL);
            else if (question == AFTER && at->deps.at[d] == node)
                give(&answer, at, NULL);
        }
    }
    if (valid)
        close_answer(&answer, count);
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTER(cuGraphGetNodes);
    return ask(NODES, graph, NULL, (struct answer){.nodes = nodes}, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTER(cuGraphGetRootNodes);
    return ask(ROOTS, graph, NULL, (struct answer){.nodes = nodes}, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count)
{
    SIM_ENTER(cuGraphGetEdges_v2);
    if (!from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    return ask(EDGES, graph, NULL, (struct answer){.nodes = from, .to = to, .edges = edges}, count);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
    SIM_ENTER(cuGraphNodeGetDependencies_v2);
    return ask(BEFORE, NULL, node, (struct answer){.nodes = nodes, .edges = edges}, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
    SIM_ENTER(cuGraphNodeGetDependentNodes_v2);
    return ask(AFTER, NULL, node, (struct answer){.nodes = nodes, .edges = edges}, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}

static bool has_dep(CUgraphNode node, CUgraphNode dep)
{
    bool has = false;
    for (unsigned i = 0; i < node->deps.count; i++)
        has |= node->deps.at[i] == dep;
    return has;
}

static CUresult change_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count, bool add)
{
    if (count && (!from || !to))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_graph_get(graph);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (!node_of(from[i], graph) || !node_of(to[i], graph) || from[i] == to[i] || has_dep(to[i], from[i]) == add)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (!add)
            remove_node(&to[i]->deps, from[i]);
        else if (sim_nodes_add(&to[i]->deps, from[i]) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_unlock();
    return result;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
    const CUgraphEdgeData *edges, size_t count)
{
    SIM_ENTER(cuGraphAddDependencies_v2);
    (void)edges;
    return change_edges(graph, from, to, count, true);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    SIM_REFUSED(cuGraphAddDependencies, graph, from, to, count);
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
    const CUgraphEdgeData *edges, size_t count)
{
    SIM_ENTER(cuGraphRemoveDependencies_v2);
    (void)edges;
    return change_edges(graph, from, to, count, false);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    SIM_REFUSED(cuGraphRemoveDependencies, graph, from, to, count);
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
    SIM_ENTER(cuGraphDestroyNode);
    sim_lock();
    CUresult result = node_of(node, NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && (node->step.memory || node->step.address || node->graph->capturing))
        result = CUDA_ERROR_NOT_SUPPORTED; /* memory nodes stay, and so do those that a capture may depend on */
    if (result == CUDA_SUCCESS) {
        CUgraph graph = node->graph;
        remove_node(&graph->nodes, node);
        for (unsigned i = 0; i < graph->nodes.count; i++)
            remove_node(&graph->nodes.at[i]->deps, node);
        free_node(node);
    }
    sim_unlock();
    return result;
}
