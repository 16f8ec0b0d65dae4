/* A card: the memory of a device, and mappings of the machine, as numbers. Where the settings name a card, several processes
   share both. Each number is then the sum over their rows. */
#ifndef SIM_CARD_H
#define SIM_CARD_H

#include <stdbool.h>

#include "sim.h"

/* Takes a place on the shared card, if the settings name one. */
CUresult sim_card_start(void);

/* Locked, here and below. Bytes of a device that this process holds, and that nobody does. */
uint64_t sim_card_used(const struct sim_device *device);
uint64_t sim_card_free(const struct sim_device *device);
/* Writes the files of the device's host, if it has one (host.h). */
void sim_card_look_at_host(const struct sim_device *device);
/* Bytes of the device's memory: taken, if there is as much, and given back. managed.h takes them after making room. */
bool sim_card_charge(struct sim_device *device, uint64_t bytes);
void sim_device_discharge(struct sim_device *device, uint64_t bytes);

/* Managed memory that is on the device. Any process that needs room has it moved to the host, whichever process made it. That
   one has its pieces in lists of its own, so others only note how many bytes they took. These bytes are free at once. The
   owner settles them with the next pieces that it moves.

   An example on a card of 10 MiB. Process A has five pieces of 2 MiB there. B charges 3 MiB: 3 MiB of A's are evicted, A holds
   7 MiB, and nothing is free. When A moves its two oldest pieces, 3 of their 4 MiB are settled, and 1 MiB becomes free. */
bool sim_card_charge_managed(struct sim_device *device, uint64_t bytes);
void sim_card_discharge_managed(struct sim_device *device, uint64_t bytes);
/* Bytes of this process that others evicted and it has not moved yet. */
uint64_t sim_card_evicted(const struct sim_device *device);
/* Evicts what other processes have, until so many bytes are free; false: they have none. */
bool sim_card_evict_others(const struct sim_device *device, uint64_t bytes);

/* Mappings of the machine (config.h), by whichever device: taken, if there are as many, and given back. */
bool sim_mappings_take(uint64_t count);
void sim_mappings_give(uint64_t count);

/* A context of the device begins to live, or ends. */
void sim_card_context(const struct sim_device *device, bool begins);

/* Not locked: segalloc_sim_processes of extra.h. */
size_t sim_card_processes(int index, struct segalloc_sim_process *ret, size_t room);

#endif
