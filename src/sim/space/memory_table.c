#include "space/memory_table.h"

#include <stdlib.h>

#include "device/device.h"

struct sim_memory *sim_memory_find(uint64_t address)
{
    struct sim_range *range = sim_ranges_find(&sim.memory, address);
    return range ? SIM_CONTAINER(range, struct sim_memory, range) : NULL;
}

struct sim_memory *sim_memory_enter(enum sim_memory_kind kind, uint64_t base, uint64_t size, CUcontext context,
    struct sim_device *device)
{
    struct sim_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return NULL;
    memory->range.base = base;
    memory->range.size = size;
    memory->kind = kind;
    memory->context = context;
    memory->device = device;
    memory->buffer_id = ++sim.next_id;
    sim_ranges_insert(&sim.memory, &memory->range);
    return memory;
}

void sim_memory_forget(struct sim_memory *memory)
{
    sim_ranges_remove(&sim.memory, &memory->range);
    free(memory);
}
