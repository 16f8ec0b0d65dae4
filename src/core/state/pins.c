/* Pages are pinned one by one, and a call is emitted once, with the first page and their number: a replay pins the
   same ones. A page that is pinned already is not counted again. */
#include "core/state/pins.h"

void sg_device_pin_locked(struct sg_device *device, struct sg_region *region, uint32_t first, uint32_t pages)
{
    SG_ASSERT_HELD(&device->lock);
    bool any = false;
    for (uint32_t page = first; page < first + pages; page++) {
        if (region->memory.pin[page] & SG_PIN_ASKED)
            continue;
        region->memory.pinned += !region->memory.pin[page] && region->memory.handle[page] != SG_PAGE_ALIAS;
        region->memory.pin[page] |= SG_PIN_ASKED;
        sg_gauge_add(&device->accounts.usage.pinned, sg_region_page_bytes(region));
        any = true;
    }
    if (any)
        sg_emit(device, SEGALLOC_RECORD_PIN, 0, sg_device_unknown_stream(device),
            (uint64_t)region->index << SG_PIN_REGION_SHIFT | first, pages);
}
