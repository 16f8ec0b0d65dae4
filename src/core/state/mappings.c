#include "core/state/mappings.h"

#include "core/space/page_size.h"

SG_UNCHECKED_LOCKS uint32_t sg_mappings_devices(const struct sg_device *device)
{
    return 1 + (uint32_t)__builtin_popcountll(device->access.peers & ~(UINT64_C(1) << device->ordinal));
}

static uint64_t pages_mapped_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t pages = 0;
    for (uint32_t i = 0; i < device->regions.count; i++)
        pages += device->regions.region[i]->memory.mapped;
    return pages;
}

static uint64_t pages_old_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t pages = 0;
    for (uint32_t i = 0; i < device->regions.count; i++)
        pages += device->regions.region[i]->memory.stale;
    return pages;
}

uint64_t sg_mappings_now_locked(const struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    return (pages_mapped_locked(device) + pages_old_locked(device)) * sg_mappings_devices(device);
}

/* Pages that the device may have, each at one address. */
static uint64_t pages_most(const struct sg_device *device)
{
    return (uint64_t)device->core->conf.mapping_limit / sg_mappings_devices(device);
}

/* Pages of a size that fill what may still be held. */
static uint64_t pages_to_fill_locked(const struct sg_device *device, uint64_t page) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t held = device->accounts.usage.reserved.now, most = device->capacity_bytes;
    return most > held ? (most - held) / page : 0;
}

uint32_t sg_mappings_left_locked(const struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    if (device->room.mappings_out)
        return 0;
    uint64_t mapped = pages_mapped_locked(device), most = pages_most(device),
             full = mapped + pages_to_fill_locked(device, device->regions.page_bytes[SG_KIND_REGULAR]);
    uint64_t share = sg_pages_when_full(most); /* of a size of the user's a full device may have more */
    full = full < share ? full : share > mapped ? share : mapped;
    uint64_t taken = full + pages_old_locked(device);
    return taken < most ? (uint32_t)(most - taken) : 0;
}

SG_UNCHECKED_LOCKS void sg_mappings_size_pages(struct sg_device *device)
{
    const struct sg_conf *conf = &device->core->conf;
    uint64_t granule = device->granularity, page = granule;
    if (conf->page_size != SG_AUTO) {
        uint64_t most = device->total_bytes / SG_PAGES_LEAST / granule * granule;
        page = (conf->page_size + granule - 1) / granule * granule;
        page = page <= most ? page : most > granule ? most : granule;
    } else
        page = sg_core_page_bytes(granule, device->capacity_bytes, pages_most(device));
    device->regions.page_bytes[SG_KIND_SMALL] = granule;
    device->regions.page_bytes[SG_KIND_REGULAR] = page;
}

void sg_mappings_watch_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t page = device->regions.page_bytes[SG_KIND_REGULAR], mapped = pages_mapped_locked(device),
             most = pages_most(device);
    if (device->core->conf.page_size != SG_AUTO || mapped + pages_to_fill_locked(device, page) <= most)
        return;
    while (mapped + pages_to_fill_locked(device, page) > most && page < device->capacity_bytes)
        page *= 2;
    device->regions.page_bytes[SG_KIND_REGULAR] = page;
    if (mapped > most / 2) /* the small region may be most of them */
        device->regions.page_bytes[SG_KIND_SMALL] = page;
}
