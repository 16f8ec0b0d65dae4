/* Memory of graphs: addresses that a graph's allocation node has for its life, and bytes that a launch takes. */
#ifndef SIM_GRAPH_MEMORY_H
#define SIM_GRAPH_MEMORY_H

#include "space/memory_table.h"

/* Memory of an allocation node: its address is fixed for the node's life, its bytes are taken by a launch. */
struct sim_graph_memory {
    unsigned refs;     /* nodes and images that allocate it */
    bool live;         /* launched and not freed since; with refs 0 too, until it is freed */
    CUstream freed_on; /* a free is under way there, with a reference; NULL: none, or its place is not known yet */
    uint64_t freed_at;
    struct sim_memory *memory;
};

/* Locked, here and below. */
/* Its addresses stay while the graph and its executables do, which each have a reference. It has bytes of the device while
   it is taken. */
CUresult sim_graph_memory_new(struct sim_device *device, uint64_t bytes, struct sim_graph_memory **ret);
void sim_graph_memory_unref(struct sim_graph_memory *memory);
CUresult sim_graph_memory_take(struct sim_graph_memory *memory);
void sim_graph_memory_give(struct sim_graph_memory *memory);
/* A free was submitted as the work at that position, unless it has taken effect by now. The next launch of the memory's
   graph comes after it. Nothing for other memory. */
void sim_graph_memory_freed(uint64_t address, CUstream stream, uint64_t position);

/* True where nobody is freeing it yet, and, of a graph's memory, a launch has taken it and nobody freed it since. */
bool sim_memory_is_freeable(const struct sim_memory *memory);

#endif
