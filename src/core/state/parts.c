#include "core/state/parts.h"

#include "base/meta.h"

static size_t parts_bytes(uint32_t room)
{
    return sizeof(struct sg_parts) + room * sizeof(CUmemGenericAllocationHandle);
}

struct sg_parts *sg_parts_new(uint32_t room)
{
    struct sg_parts *parts = sg_meta_map(parts_bytes(room));
    if (parts)
        parts->room = room;
    return parts;
}

void sg_parts_free(struct sg_parts *parts)
{
    if (parts)
        sg_meta_unmap(parts, parts_bytes(parts->room));
}

void sg_parts_keep_locked(struct sg_device *device, struct sg_region *region, struct sg_parts *parts)
{
    SG_ASSERT_HELD(&device->lock);
    region->memory.parts = parts;
    sg_gauge_add(&device->accounts.usage.overflow, parts->far_bytes);
}

void sg_parts_drop_locked(struct sg_device *device, struct sg_region *region)
{
    SG_ASSERT_HELD(&device->lock);
    if (region->memory.parts)
        sg_gauge_sub(&device->accounts.usage.overflow, region->memory.parts->far_bytes);
    region->memory.parts = NULL;
}
