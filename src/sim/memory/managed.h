/* Managed memory: where its pieces are, which is on a device from when that touches them or they are fetched there, and
   in the host's memory when the device needs room for something else. No call fails for that. Settings: managed-apart. */
#ifndef SIM_MANAGED_H
#define SIM_MANAGED_H

#include "memory/mem.h"

/* Whether any was ever made: before, nobody need look. No lock. */
bool sim_managed_any(void);

/* All locked. An allocation was made, or comes to its end; false: out of host memory. */
bool sim_managed_begin(struct sim_memory *memory);
void sim_managed_end(struct sim_memory *memory);

/* A range comes to be on a device, in the host's memory with NULL. What lies in no managed memory is left alone. */
void sim_managed_fetch(uint64_t address, uint64_t bytes, struct sim_device *device);

/* A piece of work is about to run: what it is known to touch comes to its device. */
void sim_managed_work(const struct sim_work *work);

/* Has the piece of the device's that was not used for longest go to the host; false: there is none. */
bool sim_managed_evict(struct sim_device *device);

#endif
