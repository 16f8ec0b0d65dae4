/* How large pages are, so that a full device takes a bounded number of them.

   Why: a machine has a bounded number of mappings, and filling a device costs by the page. How: the granule doubles until
   what may be held has at most 5/6 of the mappings as pages. The sixth is for second addresses.

   For example, 80 GiB with granules of 2 MiB and 12,288 mappings: 40,960 pages of 2 MiB, 20,480 of 4 MiB and 10,240 of
   8 MiB. The limit is 10,240, so pages are of 8 MiB. */
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

/* The page size that page_size_mb:auto takes for `bytes` that may be held. It is the power of two of granules by
   which those are at most 5/6 of `mappings` pages. */
uint64_t sg_core_page_bytes(uint64_t granularity, uint64_t bytes, uint64_t mappings);

#endif
