#include "space/mapping.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/card.h"
#include "device/device.h"

static struct sim_mapping *mapping_of(struct sim_range *range)
{
    return range ? SIM_CONTAINER(range, struct sim_mapping, range) : NULL;
}

struct sim_mapping *sim_mapping_next(const struct sim_memory *reservation, const struct sim_mapping *mapping)
{
    uint64_t end = mapping->range.base + mapping->range.size;
    return mapping_of(sim_ranges_find(&reservation->mappings, end));
}

struct sim_mapping *sim_mapping_find(uint64_t address)
{
    struct sim_memory *memory = sim_memory_find(address);
    if (!memory || memory->kind != SIM_MEMORY_RESERVATION)
        return NULL;
    return mapping_of(sim_ranges_find(&memory->mappings, address));
}

const unsigned char *sim_mapping_rights(const struct sim_mapping *mapping, uint64_t address)
{
    if (!mapping->granules)
        return mapping->access;
    return mapping->granules + (address - mapping->range.base) / SIM_GRANULE * SIM_DEVICES_MAX;
}

static int mapping_protection_of(unsigned flags)
{
    return flags & 2 ? PROT_READ | PROT_WRITE : flags & 1 ? PROT_READ : PROT_NONE;
}

/* Rights of the host: the union of the devices'. */
static int mapping_protection(const unsigned char *rights)
{
    unsigned all = 0;
    for (int i = 0; i < sim.device_count; i++)
        all |= rights[i];
    return mapping_protection_of(all);
}

bool sim_vmm_usable(const struct sim_memory *reservation, uint64_t address, uint64_t size, bool write,
    const struct sim_device *by)
{
    int need = write ? PROT_WRITE : PROT_READ;
    for (uint64_t end = address + size; address < end;) {
        struct sim_mapping *mapping = mapping_of(sim_ranges_find(&reservation->mappings, address));
        const unsigned char *rights = mapping ? sim_mapping_rights(mapping, address) : NULL;
        if (!mapping || !((by ? mapping_protection_of(rights[by->ordinal]) : mapping_protection(rights)) & need))
            return false;
        address = mapping->granules ? (address / SIM_GRANULE + 1) * SIM_GRANULE
                                    : mapping->range.base + mapping->range.size;
    }
    return true;
}

struct sim_mapping *sim_mapping_run(struct sim_memory *reservation, uint64_t address, uint64_t size, bool whole)
{
    struct sim_mapping *first = mapping_of(sim_ranges_find(&reservation->mappings, address));
    if (!first || (whole && first->range.base != address))
        return NULL;
    for (struct sim_mapping *mapping = first; mapping; mapping = sim_mapping_next(reservation, mapping)) {
        uint64_t end = mapping->range.base + mapping->range.size;
        if (end >= address + size)
            return whole && end != address + size ? NULL : first;
    }
    return NULL;
}

/* Rights on a part of a mapping are kept a granule at a time from then on. */
static bool mapping_keep_by_granule(struct sim_mapping *mapping)
{
    if (mapping->granules)
        return true;
    size_t count = mapping->range.size / SIM_GRANULE;
    mapping->granules = malloc(count * SIM_DEVICES_MAX);
    for (size_t i = 0; mapping->granules && i < count; i++)
        memcpy(mapping->granules + i * SIM_DEVICES_MAX, mapping->access, SIM_DEVICES_MAX);
    return mapping->granules != NULL;
}

bool sim_mapping_set_rights(struct sim_mapping *mapping, uint64_t base, uint64_t end, const CUmemAccessDesc *access,
    size_t count)
{
    bool whole = base == mapping->range.base && end == mapping->range.base + mapping->range.size;
    if (whole && mapping->granules && sim.device_count == 1) {
        free(mapping->granules);
        mapping->granules = NULL;
    }
    if (!whole && !mapping_keep_by_granule(mapping))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (whole)
            mapping->access[access[i].location.id] = (unsigned char)access[i].flags;
        for (uint64_t at = base; mapping->granules && at < end; at += SIM_GRANULE)
            mapping->granules[(at - mapping->range.base) / SIM_GRANULE * SIM_DEVICES_MAX +
                              (unsigned)access[i].location.id] = (unsigned char)access[i].flags;
    }
    return true;
}

/* One mprotect for each stretch of equal rights. */
bool sim_mapping_protect(const struct sim_memory *reservation, uint64_t address, uint64_t end)
{
    while (address < end) {
        uint64_t stretch = address;
        int prot = -1;
        while (stretch < end) {
            struct sim_mapping *mapping = mapping_of(sim_ranges_find(&reservation->mappings, stretch));
            assert(mapping);
            int here = mapping_protection(sim_mapping_rights(mapping, stretch));
            if (prot != -1 && prot != here)
                break;
            prot = here;
            stretch = mapping->granules ? stretch + SIM_GRANULE : mapping->range.base + mapping->range.size;
        }
        if (stretch > end)
            stretch = end;
        if (mprotect(sim_pointer(address), stretch - address, prot) != 0)
            return false;
        address = stretch;
    }
    return true;
}

/* The devices on which `mapping` is to be once access is set. Where rights on a part change, the rest stays too. */
static uint32_t mapping_devices_then(const struct sim_mapping *mapping, bool whole, const CUmemAccessDesc *access,
    size_t count)
{
    uint32_t on = mapping->on;
    for (size_t i = 0; i < count; i++) {
        uint32_t bit = UINT32_C(1) << access[i].location.id;
        if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            on |= bit;
        else if (whole)
            on &= ~bit;
    }
    return on;
}

/* Takes what [address, end) lacks of the machine's mappings, and gives back what is of no use any more. False: there are
   too few, and nothing has changed. */
bool sim_mapping_charge(struct sim_memory *reservation, struct sim_mapping *first, uint64_t address, uint64_t end,
    const CUmemAccessDesc *access, size_t count)
{
    uint64_t more = 0, less = 0;
    for (int done = 0; done < 2; done++) {
        for (struct sim_mapping *mapping = first; mapping && mapping->range.base < end;
             mapping = sim_mapping_next(reservation, mapping)) {
            bool whole = mapping->range.base >= address && mapping->range.base + mapping->range.size <= end;
            uint32_t on = mapping_devices_then(mapping, whole, access, count);
            more += done ? 0 : (unsigned)__builtin_popcount(on & ~mapping->on);
            less += done ? 0 : (unsigned)__builtin_popcount(mapping->on & ~on);
            if (done)
                mapping->on = on;
        }
        if (!done && more && !sim_mappings_take(more))
            return false;
    }
    sim_mappings_give(less);
    return true;
}
