/* Managed memory: where its pieces are. A piece is on a device from when that touches it or it is fetched there. It goes to the
   host's memory when the device needs room for something else; no call fails for that. Settings: managed-apart.

   For example, a device of 8 GiB is full, and 6 GiB of that are managed memory. A cuMemAlloc of 10 MiB is served: the five
   pieces of 2 MiB that were not used for longest go to the host. Where several processes share a card, a process's own pieces go
   first, then those of others. UVM has one list for all processes; the simulator has one for each. */
#ifndef SIM_MANAGED_H
#define SIM_MANAGED_H

#include "space/memory_table.h"

struct sim_work;

/* True once any was made: before, nobody need look. No lock. */
bool sim_managed_any(void);

/* All locked. An allocation was made, or comes to its end; false: out of host memory. */
bool sim_managed_begin(struct sim_memory *memory);
void sim_managed_end(struct sim_memory *memory);

/* A range comes to be on a device, in the host's memory with NULL. Bytes in no managed memory are left alone. */
void sim_managed_fetch(uint64_t address, uint64_t bytes, struct sim_device *device);

/* A piece of work is about to run: what it is known to touch comes to its device. */
void sim_managed_work(const struct sim_work *work);

/* Has the piece of the device's that was not used for longest go to the host; false: there is none. */
bool sim_managed_evict(struct sim_device *device);

/* Pieces go to the host whose bytes other processes have taken (card.h). */
void sim_managed_settle(struct sim_device *device);

/* Bytes of the device's memory, after managed memory has made room; false: there are not as many. sim_device_discharge of
   card.h gives them back. */
bool sim_device_charge(struct sim_device *device, uint64_t bytes);

#endif
