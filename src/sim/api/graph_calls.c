/* Entry points of graphs and their edges. */
#include "calls.h"
#include "graphs/graph.h"
#include "streams/nodes.h"

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
    bool valid = type && sim_graph_has_node(node, NULL);
    if (valid)
        *type = node->step.type;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The answer of every query of nodes or edges. With NULL it is how many there are. Else it is as many as there is room for,
   NULL where there are fewer, and how many were given. */
struct answer {
    CUgraphNode *nodes, *to;
    CUgraphEdgeData *edges;
    size_t room, found;
};

static void answer_give(struct answer *answer, CUgraphNode node, CUgraphNode to)
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

static void answer_close(struct answer *answer, size_t *count)
{
    for (size_t i = answer->found; answer->nodes && i < answer->room; i++)
        answer->nodes[i] = NULL;
    *count = answer->nodes && answer->found > answer->room ? answer->room : answer->found;
}

enum question { NODES, ROOTS, EDGES, BEFORE, AFTER };

static CUresult graph_ask(enum question question, CUgraph graph, CUgraphNode node, struct answer answer, size_t *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    answer.room = answer.nodes ? *count : 0;
    sim_lock();
    bool valid = question < BEFORE ? sim_handle_valid(graph, SIM_KIND_GRAPH) : sim_graph_has_node(node, NULL);
    if (valid && question >= BEFORE)
        graph = node->graph;
    for (unsigned i = 0; valid && i < graph->nodes.count; i++) {
        CUgraphNode at = graph->nodes.at[i];
        if (question == NODES || (question == ROOTS && !at->deps.count))
            answer_give(&answer, at, NULL);
        for (unsigned d = 0; d < at->deps.count; d++) {
            if (question == EDGES)
                answer_give(&answer, at->deps.at[d], at);
            else if (question == BEFORE && at == node)
                answer_give(&answer, at->deps.at[d], NULL);
            else if (question == AFTER && at->deps.at[d] == node)
                answer_give(&answer, at, NULL);
        }
    }
    if (valid)
        answer_close(&answer, count);
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTER(cuGraphGetNodes);
    return graph_ask(NODES, graph, NULL, (struct answer){.nodes = nodes}, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTER(cuGraphGetRootNodes);
    return graph_ask(ROOTS, graph, NULL, (struct answer){.nodes = nodes}, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count)
{
    SIM_ENTER(cuGraphGetEdges_v2);
    if (!from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    return graph_ask(EDGES, graph, NULL, (struct answer){.nodes = from, .to = to, .edges = edges}, count);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
    SIM_ENTER(cuGraphNodeGetDependencies_v2);
    return graph_ask(BEFORE, NULL, node, (struct answer){.nodes = nodes, .edges = edges}, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count)
{
    SIM_ENTER(cuGraphNodeGetDependentNodes_v2);
    return graph_ask(AFTER, NULL, node, (struct answer){.nodes = nodes, .edges = edges}, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}

static bool node_has_dep(CUgraphNode node, CUgraphNode dep)
{
    bool has = false;
    for (unsigned i = 0; i < node->deps.count; i++)
        has |= node->deps.at[i] == dep;
    return has;
}

static CUresult graph_change_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count, bool add)
{
    if (count && (!from || !to))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_graph_get(graph);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (!sim_graph_has_node(from[i], graph) || !sim_graph_has_node(to[i], graph) || from[i] == to[i] ||
            node_has_dep(to[i], from[i]) == add)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (!add)
            sim_nodes_remove(&to[i]->deps, from[i]);
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
    return graph_change_edges(graph, from, to, count, true);
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
    return graph_change_edges(graph, from, to, count, false);
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
    CUresult result = sim_graph_has_node(node, NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && (node->step.memory || node->step.address || node->graph->capturing))
        result = CUDA_ERROR_NOT_SUPPORTED; /* memory nodes stay, and so do those that a capture may depend on */
    if (result == CUDA_SUCCESS) {
        CUgraph graph = node->graph;
        sim_nodes_remove(&graph->nodes, node);
        for (unsigned i = 0; i < graph->nodes.count; i++)
            sim_nodes_remove(&graph->nodes.at[i]->deps, node);
        sim_node_free(node);
    }
    sim_unlock();
    return result;
}
