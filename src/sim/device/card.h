/* A card: the memory of a device, and mappings of the machine, as numbers. Where the settings name a card, several processes
   share both. Each number is then the sum over their rows. */
#ifndef SIM_CARD_H
#define SIM_CARD_H

#include <stdbool.h>

#include "sim.h"

/* Takes a place on the shared card, if the settings name one. */
CUresult sim_card_start(void);

/* Locked, here and below. Bytes of a device that other processes hold. */
uint64_t sim_card_others(const struct sim_device *device);
/* Bytes of the device's memory: taken, if there is as much, and given back. managed.h takes them after making room. */
bool sim_card_charge(struct sim_device *device, uint64_t bytes);
void sim_device_discharge(struct sim_device *device, uint64_t bytes);
/* Mappings of the machine (config.h), by whichever device: taken, if there are as many, and given back. */
bool sim_mappings_take(uint64_t count);
void sim_mappings_give(uint64_t count);

/* A context of the device begins to live, or ends. */
void sim_card_context(const struct sim_device *device, bool begins);

/* Not locked: segalloc_sim_processes of extra.h. */
size_t sim_card_processes(int index, struct segalloc_sim_process *ret, size_t room);

#endif
