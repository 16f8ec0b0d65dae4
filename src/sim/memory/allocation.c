#include "memory/allocation.h"

#include "device/card.h"
#include "device/context.h"
#include "device/device.h"
#include "hazard/hazard.h"
#include "hazard/owner.h"
#include "memory/graph_memory.h"
#include "memory/pool.h"
#include "space/arena.h"
#include "space/ipc_map.h"
#include "space/managed.h"

static const uint64_t host_chunk = UINT64_C(1) << 30;

static struct sim_arena *managed_arena, *host_arena, *global_arena;

static struct sim_arena *memory_arena(enum sim_memory_kind kind, struct sim_device *device, bool uncharged)
{
    struct sim_arena **arena = kind == SIM_MEMORY_MANAGED ? &managed_arena
                               : kind == SIM_MEMORY_HOST  ? &host_arena
                               : uncharged                ? &global_arena
                                                          : &device->arena;
    if (!*arena)
        *arena = sim_arena_new(NULL, host_chunk);
    return *arena;
}

/* How many of the machine's mappings a device's allocation takes: none where it shares its page with others. */
static uint64_t memory_mappings(enum sim_memory_kind kind, uint64_t bytes)
{
    return kind == SIM_MEMORY_DEVICE && bytes >= SIM_GRANULE;
}

CUresult sim_memory_take_kind(enum sim_memory_kind kind, CUcontext context, uint64_t size, bool uncharged,
    struct sim_memory **ret)
{
    struct sim_device *device = context->device;
    bool charged = kind == SIM_MEMORY_DEVICE && !uncharged;
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > INT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t unit = charged && size >= SIM_GRANULE ? SIM_GRANULE : SIM_ALIGNMENT; /* small ones share pages */
    uint64_t bytes = (size + unit - 1) & ~(unit - 1);
    if (charged && !sim_mappings_take(memory_mappings(kind, bytes)))
        return sim.config.mappings_code;
    if (charged && !sim_device_charge(device, bytes)) {
        sim_mappings_give(memory_mappings(kind, bytes));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_arena *arena = memory_arena(kind, device, uncharged);
    uint64_t base = arena ? sim_arena_take(arena, bytes) : 0;
    struct sim_memory *memory = base ? sim_memory_enter(kind, base, size, context, device) : NULL;
    if (memory && kind == SIM_MEMORY_MANAGED && !sim_managed_begin(memory)) {
        sim_memory_forget(memory);
        memory = NULL;
    }
    if (!memory) {
        if (base)
            sim_arena_give(arena, base, bytes);
        if (charged) {
            sim_mappings_give(memory_mappings(kind, bytes));
            sim_device_discharge(device, bytes);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->charged = bytes;
    memory->uncharged = uncharged;
    *ret = memory;
    return CUDA_SUCCESS;
}

CUresult sim_memory_take(CUcontext context, uint64_t size, bool uncharged, struct sim_memory **ret)
{
    return sim_memory_take_kind(SIM_MEMORY_DEVICE, context, size, uncharged, ret);
}

void sim_memory_drop(struct sim_memory *memory)
{
    if (memory->graph) {
        sim_graph_memory_give(memory->graph);
        return;
    }
    switch (memory->kind) {
    case SIM_MEMORY_POOL:
        sim_pool_give(memory);
        return;
    case SIM_MEMORY_DEVICE:
        if (!memory->uncharged) {
            sim_mappings_give(memory_mappings(memory->kind, memory->charged));
            sim_device_discharge(memory->device, memory->charged);
        }
        __attribute__((fallthrough));
    case SIM_MEMORY_MANAGED:
    case SIM_MEMORY_HOST:
        sim_managed_end(memory);
        sim_arena_give(memory_arena(memory->kind, memory->device, memory->uncharged), memory->range.base,
            memory->charged);
        break;
    case SIM_MEMORY_IMPORTED:
        sim_ipc_unmap(memory);
        break;
    case SIM_MEMORY_REGISTERED:
    case SIM_MEMORY_RESERVATION:
        break;
    }
    sim_hazard_given(memory->range.base, memory->range.size);
    if (sim.config.hazard)
        sim_owner_forget(memory->range.base, memory->range.size);
    sim_memory_forget(memory);
}

void sim_memory_drop_context(CUcontext context)
{
    struct sim_range *range = sim_ranges_at_or_after(&sim.memory, 0);
    while (range) {
        struct sim_memory *memory = SIM_CONTAINER(range, struct sim_memory, range);
        range = sim_ranges_at_or_after(&sim.memory, range->base + range->size);
        if (memory->context == context)
            sim_memory_drop(memory);
    }
}
