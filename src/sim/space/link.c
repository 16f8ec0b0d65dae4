#include "space/link.h"

#include <stdatomic.h>

#include "streams/work.h"

static _Atomic uint64_t far_mappings;

bool sim_link_any(void)
{
    return atomic_load_explicit(&far_mappings, memory_order_relaxed) > 0;
}

static void link_note_far(struct sim_mapping *mapping)
{
    atomic_fetch_add(&far_mappings, !mapping->far);
    mapping->far = true;
}

void sim_link_begin(struct sim_mapping *mapping)
{
    if (!mapping->physical->device)
        link_note_far(mapping);
}

void sim_link_access(struct sim_mapping *mapping, const CUmemAccessDesc *access, size_t count)
{
    const struct sim_device *device = mapping->physical->device;
    for (size_t i = 0; device && i < count; i++)
        if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && access[i].location.id != device->ordinal)
            link_note_far(mapping);
}

void sim_link_end(const struct sim_mapping *mapping)
{
    atomic_fetch_sub(&far_mappings, mapping->far);
}

/* Counts the bytes of a range that lie on pages outside the device's memory. */
static void link_count_far(uint64_t address, uint64_t bytes, struct sim_device *device)
{
    for (uint64_t end = address + bytes; address < end;) {
        const struct sim_mapping *mapping = sim_mapping_find(address);
        if (!mapping)
            break;
        uint64_t next = mapping->range.base + mapping->range.size;
        next = next < end ? next : end;
        if (!mapping->physical->device)
            device->link.host_bytes += next - address;
        else if (mapping->physical->device != device)
            device->link.peer_bytes += next - address;
        address = next;
    }
}

void sim_link_work(const struct sim_work *work)
{
    if (!sim_link_any())
        return;
    struct sim_device *device = work->context->device;
    for (unsigned i = 0; i < work->touch_count; i++)
        link_count_far(work->touches[i].address, work->touches[i].bytes, device);
    device->link.untold += work->unknown && !work->host_function;
}
