/* Every invariant that the headers of the core claim, in functions for tests: none of them is part of the library.

   Nobody else may be using the core, and no operation be under way. All return NULL, or the first invariant that does
   not hold, as "file:line: condition": the same text for the same defect. They change nothing and call no driver. What
   the driver believes is not looked at here: callers compare `struct sg_check_sums` with their own books. */
#ifndef SG_CHECK_H
#define SG_CHECK_H

#include "rooms.h"

enum sg_check_depth {
    SG_CHECK_EXTENTS, /* what follows from the extents and the memory that is there: as many steps as there are extents
                       and mapped pages */
    SG_CHECK_TABLES, /* and every entry of the tables that have one for each page, quick list or class */
    SG_CHECK_BUCKETS /* and of those that have one for each bucket, of which there are very many */
};

/* What a region, or all regions of a device, hold, counted extent by extent and page by page. */
struct sg_check_sums {
    uint64_t requested, allocated, pending, mapped, small_allocated, small_mapped, whole, old; /* bytes */
    uint64_t paused, paused_blocks; /* bytes of paused blocks, and how many */
    uint64_t blocks, unasked, pendings, busy, extents; /* unasked: blocks of which nothing was asked for */
    uint64_t pages, old_pages, lost, empty; /* with memory of their own, or as which `handle` says; without, though no
                                               hole */
    uint64_t asked, pinned_pages, pins_twice; /* of enum sg_pin */
};

/* The state of a page of which `extent` is the first to have a byte. Of a page of a hole that is the hole. */
enum sg_page_state sg_region_page_state(const struct sg_region *region, uint32_t page, uint32_t extent);

/* The extents tile the region; quick lists, lists, indexes and tables agree with the extents. Adds to *sums. The
   device's own counters are not checked here. */
const char *sg_region_broken(const struct sg_region *region, enum sg_check_depth depth, struct sg_check_sums *sums);

/* Checks all regions of a device, and their accounts, queues, fences and stream clocks. *ret_sums: of all. A device
   that serves no memory by ranges has but its accounts. */
const char *sg_device_broken(const struct sg_device *device, enum sg_check_depth depth, struct sg_check_sums *ret_sums);

/* What lives in fixed segments, and the segments. Under `lock`. */
struct sg_segments_usage {
    uint64_t requested, allocated, blocks, segments, reserved; /* bytes, but for the two counts */
};
struct sg_segments_usage sg_segments_usage(const struct sg_device *device);

/* The ranges and contexts of a core. */
const char *sg_core_ranges_broken(const struct sg_core *core);

/* That, and the above for all of its devices. */
const char *sg_core_broken(const struct sg_core *core, enum sg_check_depth depth);

/* Aborts with the invariant that a region breaks. */
void sg_region_check(const struct sg_region *region);

#endif
