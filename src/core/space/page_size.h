/* How large pages are, so that a full device takes a bounded number of them.

   Nouns. A *granule* is the smallest piece of memory that the driver maps, 2 MiB on every part reported. A *page* is
   one or more of them. A *mapping* is a page at one address on one device.

   Why: a machine has a bounded number of mappings, and filling a device costs by the page. How: the granule doubles
   until what may be held has at most 5/6 of the mappings as pages. The last sixth is for the small region, whose
   pages stay a granule, and for aliases (remap/page_alias.h). Limits: large pages strand more memory, since a page
   with one byte in use stays.

   For example, 12,288 mappings allow 10,240 pages. A card of 80 GiB with granules of 2 MiB has 20,480 pages of 4 MiB,
   or 10,240 of 8 MiB. So its pages are of 8 MiB. A card of 24 GiB would take 12,288 pages of 2 MiB. That is too many,
   so its pages are of 4 MiB, 6,144 of them. */
#ifndef SG_CORE_SPACE_PAGE_SIZE_H
#define SG_CORE_SPACE_PAGE_SIZE_H

#include <stdint.h>

#include "core/tuning.h"

/* Pages of a full device, of `mappings`. With the default of 12,288 they are 10,240: filling a card takes 2.5 s by
   cost.def. */
static inline uint64_t sg_pages_when_full(uint64_t mappings)
{
    return mappings / SG_SPARE_MAPPINGS * (SG_SPARE_MAPPINGS - 1);
}

/* The page size in bytes that page_size_mb:auto takes for `bytes` that may be held. It is the least power of two of
   granules by which those are at most sg_pages_when_full(mappings) pages. */
uint64_t sg_core_page_bytes(uint64_t granularity, uint64_t bytes, uint64_t mappings);

#endif
