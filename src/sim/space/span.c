#include "space/span.h"

#include "device/device.h"
#include "space/mapping.h"

struct sim_device *sim_device_at(uint64_t address)
{
    struct sim_memory *memory = sim_memory_find(address);
    struct sim_mapping *mapping = sim_mapping_find(address);
    if (mapping)
        return mapping->physical->device;
    return memory && memory->kind != SIM_MEMORY_HOST && memory->kind != SIM_MEMORY_REGISTERED ? memory->device : NULL;
}

enum sim_span sim_span(uint64_t address, uint64_t size, bool write, const struct sim_device *by)
{
    struct sim_memory *memory = sim_memory_find(address);
    if (!memory)
        return SIM_SPAN_PAGEABLE;
    bool inside = size <= memory->range.base + memory->range.size - address;
    switch (memory->kind) {
    case SIM_MEMORY_HOST:
    case SIM_MEMORY_REGISTERED:
        return inside ? SIM_SPAN_PINNED : SIM_SPAN_PAGEABLE;
    case SIM_MEMORY_DEVICE:
    case SIM_MEMORY_POOL:
    case SIM_MEMORY_MANAGED:
    case SIM_MEMORY_IMPORTED:
        return inside ? SIM_SPAN_DEVICE : SIM_SPAN_BAD;
    case SIM_MEMORY_RESERVATION:
        break;
    }
    return inside && sim_vmm_usable(memory, address, size, write, by) ? SIM_SPAN_DEVICE : SIM_SPAN_BAD;
}

uint64_t sim_span_lost(uint64_t address, uint64_t size, bool write)
{
    const struct sim_memory *memory = size ? sim_memory_find(address) : NULL;
    if (!memory || memory->kind != SIM_MEMORY_RESERVATION)
        return 0;
    /* Rights are a granule's, so the first byte of a granule stands for it. */
    for (uint64_t at = address, end = address + size; at < end; at = (at / SIM_GRANULE + 1) * SIM_GRANULE)
        if (sim_span(at, 1, write, NULL) != SIM_SPAN_DEVICE)
            return at;
    return 0;
}
