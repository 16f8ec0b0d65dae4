/* The driver's calls for pages of a region, each counted in the statistics.

   Nouns. A *row* is pages next to each other. Why here: plans, pauses and what gives pages back make the same calls. How:
   `grow` is held and no other lock, and whoever calls has made the extents over those pages busy or paused.

   Limits. A call that fails changes nothing of the books: whoever makes it knows what its pages are then. Unmap and release
   are tried twice (driver/pages.h), since an error there would lose addresses or memory.

   For example, 31 pages of 4 MiB are unmapped by one call: `calls_unmap` grows by 1 and `handles_unmap` by 31. */
#ifndef SG_CORE_REMAP_PAGE_CALLS_H
#define SG_CORE_REMAP_PAGE_CALLS_H

#include "core/state/device.h"

/* The address of a page of a region. */
static inline CUdeviceptr sg_page_address(const struct sg_region *region, uint32_t page)
{
    return region->base + (CUdeviceptr)page * sg_region_page_bytes(region);
}

/* Creates memory for one page. */
CUresult sg_page_calls_create_growing(struct sg_device *device, uint64_t bytes, CUmemGenericAllocationHandle *ret)
    SG_REQUIRES(grow);

/* Creates memory for one page at a place (overflow.h). */
CUresult sg_page_calls_create_at_growing(struct sg_device *device, enum sg_place place, uint64_t bytes,
    CUmemGenericAllocationHandle *ret) SG_REQUIRES(grow);

/* Unmaps a row by one call. */
CUresult sg_page_calls_unmap_growing(struct sg_device *device, const struct sg_region *region, uint32_t first,
    uint32_t pages) SG_REQUIRES(grow);

/* Maps one page. Nobody may touch it before it has access too. */
CUresult sg_page_calls_map_growing(struct sg_device *device, const struct sg_region *region, uint32_t page,
    CUmemGenericAllocationHandle handle) SG_REQUIRES(grow);

/* Gives the device and its peers access to a row of mapped pages, in one call. */
CUresult sg_page_calls_access_growing(struct sg_device *device, const struct sg_region *region, uint32_t first,
    uint32_t pages) SG_REQUIRES(grow);

/* Gives a page back to the driver. It frees the memory once the page is mapped nowhere. */
void sg_page_calls_release_growing(struct sg_device *device, CUmemGenericAllocationHandle handle) SG_REQUIRES(grow);

/* Gives back the memory of a row of pages. */
void sg_page_calls_release_row_growing(struct sg_device *device, const struct sg_region *region, uint32_t first,
    uint32_t pages) SG_REQUIRES(grow);

#endif
