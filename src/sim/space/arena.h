/* Arenas: addresses for allocations of any size, taken from chunks of address space that are wholly mapped. A device's arena
   lies over its memory file; one without a device is anonymous memory of the host.

   For example, 3,000 bytes take 3,072, a multiple of SIM_ALIGNMENT. Given back, they stay with the process while other bytes
   of their page of 4,096 are in use. The host has the page again once all of it is free. */
#ifndef SIM_ARENA_H
#define SIM_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "sim.h"

/* Locked, here and below. `chunk` bytes of address space are taken at a time. Pages cost nothing until they are touched. NULL
   when out of host memory. */
struct sim_arena;
struct sim_arena *sim_arena_new(struct sim_device *device, uint64_t chunk);
/* 0 when no address space is left. `size` is rounded up to SIM_ALIGNMENT. */
uint64_t sim_arena_take(struct sim_arena *arena, uint64_t size);
/* Where it lies in the device's file; false: it isn't of this arena. */
bool sim_arena_offset(const struct sim_arena *arena, uint64_t address, uint64_t *ret);
/* Any part of what was taken, in units of SIM_ALIGNMENT. Its pages go back to the host and read as zero again. */
void sim_arena_give(struct sim_arena *arena, uint64_t base, uint64_t size);

#endif
