/* Conditions: values that conditional nodes go by, which kernels set. */
#ifndef SIM_CONDITION_H
#define SIM_CONDITION_H

#include "sim.h"

/* A value that conditional nodes go by. */
struct sim_condition {
    cuuint64_t handle;
    CUgraph graph; /* that it was made for; only to be compared. NULL: that one is gone */
    unsigned value, at_launch;
    bool assigned; /* the latter at each launch */
    unsigned refs; /* its graph, and choices */
    struct sim_condition *next;
};

/* Locked, here and below. One for the graph; NULL when out of host memory. `assigned`: it is `at_launch` at each launch. */
struct sim_condition *sim_condition_new(CUgraph graph, unsigned at_launch, bool assigned);
struct sim_condition *sim_condition_find(cuuint64_t handle); /* NULL: there is no such */
void sim_condition_unref(struct sim_condition *condition);
void sim_conditions_of_graph_gone(CUgraph graph);

#endif
