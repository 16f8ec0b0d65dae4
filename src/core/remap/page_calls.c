/* One call of the driver each, through driver/pages.h, which tries some of them twice. */
#include "core/remap/page_calls.h"

#include "core/state/locks.h"
#include "core/state/mappings.h"

CUresult sg_page_calls_create_growing(struct sg_device *device, uint64_t bytes, CUmemGenericAllocationHandle *ret)
{
    SG_ASSERT_HELD(&device->growth.grow);
    sg_count(device, SG_STAT_calls_create, 1);
    return sg_pages_create(&device->pages, bytes, ret);
}

CUresult sg_page_calls_create_at_growing(struct sg_device *device, enum sg_place place, uint64_t bytes,
    CUmemGenericAllocationHandle *ret)
{
    SG_ASSERT_HELD(&device->growth.grow);
    if (place == SG_PLACE_NEAR)
        return sg_page_calls_create_growing(device, bytes, ret);
    sg_count(device, SG_STAT_calls_create, 1);
    return place == SG_PLACE_PEER ? sg_pages_create_on_peer(&device->pages, device->growth.neighbour.device, bytes, ret)
                                  : sg_pages_create_on_host(&device->pages, bytes, ret);
}

CUresult sg_page_calls_unmap_growing(struct sg_device *device, const struct sg_region *region, uint32_t first,
    uint32_t pages)
{
    SG_ASSERT_HELD(&device->growth.grow);
    sg_count(device, SG_STAT_calls_unmap, 1);
    sg_count(device, SG_STAT_handles_unmap, pages);
    return sg_pages_unmap(&device->pages, sg_page_address(region, first), pages * sg_region_page_bytes(region));
}

CUresult sg_page_calls_map_growing(struct sg_device *device, const struct sg_region *region, uint32_t page,
    CUmemGenericAllocationHandle handle)
{
    SG_ASSERT_HELD(&device->growth.grow);
    sg_count(device, SG_STAT_calls_map, 1);
    return sg_pages_map(&device->pages, sg_page_address(region, page), sg_region_page_bytes(region), handle);
}

CUresult sg_page_calls_access_growing(struct sg_device *device, const struct sg_region *region, uint32_t first,
    uint32_t pages)
{
    SG_ASSERT_HELD(&device->growth.grow);
    sg_count(device, SG_STAT_calls_set_access, 1);
    sg_count(device, SG_STAT_handles_set_access, pages * sg_mappings_devices(device));
    return sg_pages_set_access(&device->pages, sg_page_address(region, first), pages * sg_region_page_bytes(region),
        sg_device_access_growing(device)->peers);
}

void sg_page_calls_release_growing(struct sg_device *device, CUmemGenericAllocationHandle handle)
{
    SG_ASSERT_HELD(&device->growth.grow);
    sg_count(device, SG_STAT_calls_release, 1);
    /* Nothing could be done about a handle that the driver won't take back. */
    (void)sg_pages_release(&device->pages, handle);
}

void sg_page_calls_release_row_growing(struct sg_device *device, const struct sg_region *region, uint32_t first,
    uint32_t pages)
{
    SG_ASSERT_HELD(&device->growth.grow);
    for (uint32_t page = first; page < first + pages; page++)
        sg_page_calls_release_growing(device, region->memory.handle[page]);
}
