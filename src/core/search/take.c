/* The depths of the search, each in a function. A look at one region is sg_region_take_locked() for all of them. The
   depths differ in how much they join before, and in which regions they try. */
#include "core/search/take.h"

#include "core/space/owner_lists.h"
#include "core/space/window.h"
#include "core/state/accounts.h"
#include "core/state/budget.h"
#include "core/state/regions.h"
#include "core/streams/pending_frees.h"

bool sg_device_coalesce_completed_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    bool any = device->pending.awaits_streams.first && device->pending.awaits_streams_version != device->clocks.version;
    if (any)
        sg_pending_settle_locked(device);
    for (uint32_t i = 0; i < device->regions.count; i++)
        any = sg_region_coalesce_completed_locked(device->regions.region[i]) || any;
    return any;
}

/* The quick looks, region by region. Joining what the small region's lists keep reads memory that is in no cache. So
   it is left out where they keep fewer than one block of 1,024 extents, and a new page costs nobody anything (low
   pressure). */
static inline uint32_t take_free_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    for (uint32_t i = 0; i < device->regions.count; i++) {
        if (!sg_device_suits_locked(device, i, want->purpose, want->units))
            continue;
        uint32_t extent = sg_region_take_locked(device->regions.region[i], want->units, want->end, want->slot);
        if (!extent &&
            (sg_purpose_kind(want->purpose) != SG_KIND_SMALL ||
                device->regions.region[i]->quick.deferred > device->regions.extents.live / SG_QUICK_SHARE ||
                !sg_device_is_low_pressure_locked(device, (uint64_t)want->units << SG_UNIT_SHIFT)) &&
            sg_region_drain_quick_lists_locked(device->regions.region[i]))
            extent = sg_region_take_locked(device->regions.region[i], want->units, want->end, want->slot);
        if (extent)
            return extent;
    }
    return 0;
}

uint32_t sg_device_take_locked(struct sg_device *device, const struct sg_want *want)
{
    SG_ASSERT_HELD(&device->lock);
    /* Frees that wait for streams may be over by now, which costs a comparison to find out if the clocks stand
       still. */
    if (device->pending.awaits_streams.first)
        sg_pending_settle_locked(device);
    return take_free_locked(device, want);
}

/* The second depth: a window in any region of the kind. */
static uint32_t take_window_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t extent = 0;
    for (uint32_t i = 0; i < device->regions.count && !extent; i++)
        if (sg_device_suits_locked(device, i, want->purpose, want->units))
            extent = sg_region_take_window_locked(device->regions.region[i], want->units, want->slot);
    return extent;
}

uint32_t sg_device_take_thoroughly_locked(struct sg_device *device, const struct sg_want *want)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t extent = sg_device_take_locked(device, want);
    if (!extent)
        extent = take_window_locked(device, want);
    /* At last, blocks that wait for their own stream's order, and whose users this stream is ordered after. They
       become this stream's, so this comes after all that takes nothing from anybody. */
    if (!extent && sg_pending_inherit_locked(device, want->slot)) {
        extent = take_free_locked(device, want);
        if (!extent)
            extent = take_window_locked(device, want);
    }
    return extent;
}

uint32_t sg_device_take_anywhere_locked(struct sg_device *device, const struct sg_want *want)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t extent = 0;
    /* A small block in the regular region would part a range there, and take a bucket of 64 KiB to itself. */
    bool large = sg_purpose_kind(want->purpose) == SG_KIND_REGULAR;
    for (uint32_t i = 0; i < device->regions.count && !extent && large; i++)
        if (sg_kind_serves_anybody(sg_purpose_kind(device->regions.purpose[i])) &&
            sg_purpose_tag(device->regions.purpose[i]) == sg_purpose_tag(want->purpose))
            extent = sg_region_take_locked(device->regions.region[i], want->units, SG_END_LOW, want->slot);
    return extent;
}
