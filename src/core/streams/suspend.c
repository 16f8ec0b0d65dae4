/* The order matters little here, but all of it is under one lock: nobody sees a block that is neither allocated nor
   pending. */
#include "core/streams/suspend.h"

#include "core/state/accounts.h"
#include "core/streams/pending_frees.h"

void sg_device_suspend_locked(struct sg_device *device, uint32_t id, uint64_t slots, uint64_t seq)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    struct sg_usage *usage = &device->accounts.usage;
    uint64_t rounded = (uint64_t)extent->size << SG_UNIT_SHIFT;
    sg_device_account_free_locked(device, extent);
    sg_gauge_add(&usage->pending, rounded);
    sg_region_suspend_locked(device->regions.region[extent->region], id);
    sg_pending_push_locked(device, id, slots, seq);
}
