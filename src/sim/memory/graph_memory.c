#include "memory/graph_memory.h"

#include <stdlib.h>

#include "device/card.h"
#include "device/device.h"
#include "hazard/hazard.h"
#include "space/arena.h"
#include "space/managed.h"
#include "streams/stream.h"

CUresult sim_graph_memory_new(struct sim_device *device, uint64_t bytes, struct sim_graph_memory **ret)
{
    struct sim_graph_memory *memory = bytes <= INT64_MAX ? calloc(1, sizeof *memory) : NULL;
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t charged = (bytes + SIM_ALIGNMENT - 1) / SIM_ALIGNMENT * SIM_ALIGNMENT;
    uint64_t base = sim_arena_take(device->arena, charged);
    memory->memory = base ? sim_memory_enter(SIM_MEMORY_POOL, base, bytes, NULL, device) : NULL;
    if (!memory->memory) {
        if (base)
            sim_arena_give(device->arena, base, charged);
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->memory->charged = charged;
    memory->memory->graph = memory;
    memory->refs = 1;
    *ret = memory;
    return CUDA_SUCCESS;
}

static void graph_memory_end(struct sim_graph_memory *memory)
{
    struct sim_memory *entry = memory->memory;
    sim_arena_give(entry->device->arena, entry->range.base, entry->charged);
    sim_memory_forget(entry);
    free(memory);
}

void sim_graph_memory_unref(struct sim_graph_memory *memory)
{
    if (--memory->refs == 0 && !memory->live)
        graph_memory_end(memory);
}

CUresult sim_graph_memory_take(struct sim_graph_memory *memory)
{
    struct sim_device *device = memory->memory->device;
    if (memory->live)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_charge(device, memory->memory->charged))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->live = true;
    device->graph_used += memory->memory->charged;
    if (device->graph_used > device->graph_high)
        device->graph_high = device->graph_used;
    return CUDA_SUCCESS;
}

bool sim_memory_is_freeable(const struct sim_memory *memory)
{
    return !memory->leaving && (!memory->graph || memory->graph->live);
}

static void graph_memory_forget_free(struct sim_graph_memory *memory)
{
    if (memory->freed_on)
        sim_stream_unref(memory->freed_on);
    memory->freed_on = NULL;
}

void sim_graph_memory_freed(uint64_t address, CUstream stream, uint64_t position)
{
    struct sim_memory *memory = sim_memory_find(address);
    if (!memory || !memory->graph || !memory->leaving)
        return;
    graph_memory_forget_free(memory->graph);
    sim_stream_ref(stream);
    memory->graph->freed_on = stream;
    memory->graph->freed_at = position;
}

void sim_graph_memory_give(struct sim_graph_memory *memory)
{
    memory->memory->leaving = false;
    graph_memory_forget_free(memory);
    if (!memory->live)
        return;
    memory->live = false;
    sim_hazard_given(memory->memory->range.base, memory->memory->range.size);
    sim_device_discharge(memory->memory->device, memory->memory->charged);
    memory->memory->device->graph_used -= memory->memory->charged;
    if (!memory->refs)
        graph_memory_end(memory);
}
