/* Allocations: taken with their share of the card, and given back. Memory of pools and of graphs has rooms of its own. */
#ifndef SIM_ALLOCATION_H
#define SIM_ALLOCATION_H

#include "space/memory_table.h"

/* Locked, here and below. Memory of that kind; `uncharged` counts for nothing on the device. */
CUresult sim_memory_take_kind(enum sim_memory_kind kind, CUcontext context, uint64_t size, bool uncharged,
    struct sim_memory **ret);
/* Charged device memory (cuMemAlloc). */
CUresult sim_memory_take(CUcontext context, uint64_t size, bool uncharged, struct sim_memory **ret);
/* Gives back whatever kind of memory it is (not a reservation). */
void sim_memory_drop(struct sim_memory *memory);
void sim_memory_drop_context(CUcontext context);

#endif
