/* Graphs: nodes and the edges between them. A node keeps its work as a template that never runs; a launch runs copies.

   Copying and freeing go down through child graphs and the graphs of conditional nodes. For example, the copy of a graph
   with a WHILE node has a WHILE node with a graph of its own, and the same condition. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "memory/graph_memory.h"
#include "streams/event.h"
#include "streams/nodes.h"
#include "streams/work.h"

struct sim_condition;

/* The graphs of a conditional node, of which it does one, or the first one again and again. */
struct sim_choice {
    CUgraphConditionalNodeType type;
    unsigned size;
    struct sim_condition *condition;
    CUgraph body[];
};

/* A step: the doing of a node, apart from its place in a graph. */
struct sim_step {
    CUgraphNodeType type;
    struct sim_work *work;  /* kernel, copy, set, host function, memory operation */
    CUevent event;          /* record, wait */
    CUgraph child;
    struct sim_choice *choice;       /* conditional */
    struct sim_graph_memory *memory; /* allocation */
    CUdeviceptr address;             /* free */
};

struct CUgraphNode_st {
    struct sim_handle handle;
    CUgraph graph;
    struct sim_step step;
    struct sim_nodes deps;
    CUgraphNode original; /* in a clone: only to be compared */
    bool mark;
};

struct sim_object_ref;
struct CUgraph_st {
    struct sim_handle handle;
    struct sim_nodes nodes; /* in the order of their making */
    struct sim_object_ref *object_refs;
    CUgraphNode owner; /* of a child graph, or of one of a conditional node's */
    bool capturing;    /* a capture adds to it */
};

/* All locked, here and below, but for the one that says otherwise. */

/* An empty graph, and the end of one with all that it holds. */
CUresult sim_graph_new(CUgraph *ret);
void sim_graph_free(CUgraph graph);
/* A child graph node that takes the graph itself, which may have memory nodes then, rather than a copy. Not locked. */
CUresult sim_graph_add_moved(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count, CUgraph child);
/* Owns what the step holds, in any case. */
CUresult sim_graph_add(CUgraph graph, const CUgraphNode *deps, size_t count, struct sim_step step, CUgraphNode *ret);
CUresult sim_graph_get(CUgraph handle);
/* True for a node of that graph; NULL: of any. */
bool sim_graph_has_node(CUgraphNode node, CUgraph graph);
/* The end of a node, which is in no list any more. */
void sim_node_free(CUgraphNode node);
/* True where each of `nodes` is among `tips` or comes before one of them. */
bool sim_graph_all_before(CUgraph graph, const struct sim_nodes *nodes, const struct sim_nodes *tips);
/* The nodes in an order that the dependencies allow; false for a cycle, or without memory. */
bool sim_graph_sort(CUgraph graph, struct sim_nodes *ret);

/* Steps: a copy holds what the first one holds too, until both are dropped. */
CUresult sim_step_copy(const struct sim_step *from, struct sim_step *ret);
void sim_step_drop(struct sim_step *step);
/* A graph of its own, with copies of all nodes. */
CUresult sim_graph_copy(CUgraph from, CUgraph *ret);

/* Choices, with their graphs. */
CUresult sim_choice_copy(const struct sim_choice *from, struct sim_choice **ret);
void sim_choice_drop(struct sim_choice *choice);

#endif
