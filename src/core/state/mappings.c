/* Two bounds, and what keeps to each. The page size, so that a full device takes at most mapping_limit: set when the
   device is made, and raised as it fills. The number of aliases, so that the rest of the device can still be filled.
   A page counts once for each device that has access. */
#include "core/state/mappings.h"

#include "core/space/page_size.h"

SG_UNCHECKED_LOCKS uint32_t sg_mappings_devices(const struct sg_device *device)
{
    return 1 + (uint32_t)__builtin_popcountll(device->access.peers & ~(UINT64_C(1) << device->ordinal));
}

/* Pages of all regions that have memory of their own. */
static uint64_t pages_mapped_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t pages = 0;
    for (uint32_t i = 0; i < device->regions.count; i++)
        pages += device->regions.region[i]->memory.mapped;
    return pages;
}

/* Pages of addresses that are aliases: each takes mappings as a page does. */
static uint64_t pages_aliased_locked(const struct sg_device *device) SG_REQUIRES(lock)
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
    return (pages_mapped_locked(device) + pages_aliased_locked(device)) * sg_mappings_devices(device);
}

/* The most pages that the device may have if each is at one address. */
static uint64_t pages_most(const struct sg_device *device)
{
    return (uint64_t)device->core->conf.mapping_limit / sg_mappings_devices(device);
}

/* How many pages of a size would fill what may still be held. */
static uint64_t pages_to_fill_locked(const struct sg_device *device, uint64_t page) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t held = sg_device_held_locked(device), most = device->capacity_bytes;
    return most > held ? (most - held) / page : 0;
}

uint32_t sg_mappings_left_locked(const struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    if (device->room.mappings_out)
        return 0;
    uint64_t mapped = pages_mapped_locked(device), most = pages_most(device),
             full = mapped + pages_to_fill_locked(device, device->regions.page_bytes[SG_KIND_REGULAR]);
    /* With the user's page size a full device may need more pages than its share. Then the share is what aliases
       leave alone, or what is mapped already. */
    uint64_t share = sg_pages_when_full(most);
    full = full < share ? full : share > mapped ? share : mapped;
    uint64_t taken = full + pages_aliased_locked(device);
    return taken < most ? (uint32_t)(most - taken) : 0;
}

SG_UNCHECKED_LOCKS void sg_mappings_size_pages(struct sg_device *device)
{
    const struct sg_conf *conf = &device->core->conf;
    uint64_t granule = device->granularity, page = granule;
    /* The user's size is bounded by a sixteenth of the device (SG_PAGES_LEAST): with larger pages a few small blocks
       would hold the card. */
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
    /* The small region's pages stay a granule, unless so much is mapped that it may be most of it. */
    if (mapped > most / 2)
        device->regions.page_bytes[SG_KIND_SMALL] = page;
}
