/* Choices: what conditional nodes do, by a condition's value.

   For example, a node of the type WHILE whose value is 1 runs its graph, and looks at the value again. A kernel of that graph
   that sets 0 ends it. */
#ifndef SIM_CHOICE_H
#define SIM_CHOICE_H

#include "graphs/graph.h"

/* Locked, here and below, but for the last. */

/* True where its graphs have only nodes that may stand there. */
bool sim_choice_is_runnable(const struct sim_choice *choice);
/* A launch begins. */
void sim_choice_begin(const struct sim_choice *choice);
/* The graph to be run, `first` or once more; NULL: none, or no more. */
CUgraph sim_choice_next(const struct sim_choice *choice, bool first);
/* A conditional node. Not locked. */
CUresult sim_graph_add_choice(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
    CUDA_CONDITIONAL_NODE_PARAMS *params);

#endif
