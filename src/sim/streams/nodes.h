/* Lists of nodes of a graph, each at most once: what a captured stream or event stands for, and what a node depends on. */
#ifndef SIM_NODES_H
#define SIM_NODES_H

#include "sim.h"

struct sim_nodes {
    CUgraphNode *at;
    unsigned count, room;
};

/* Locked, here and below. */
int sim_nodes_add(struct sim_nodes *nodes, CUgraphNode node); /* once; -ENOMEM */
void sim_nodes_remove(struct sim_nodes *nodes, CUgraphNode node);
void sim_nodes_clear(struct sim_nodes *nodes);
int sim_nodes_copy(struct sim_nodes *to, const struct sim_nodes *from);

#endif
