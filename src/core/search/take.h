/* The search for memory that is free and mapped already.

   Nouns. A *want* is the need of an allocation: a kind of region, units, an end, a slot. The search has three depths,
   each dearer than the one before: the quick looks, windows over the borders of ranges, and regions of another kind.

   Why three: nearly all allocations end with the first look, of some tens of nanoseconds. A window walks all free
   ranges, which is only worth it where the driver would be called instead. Another kind of region is spoilt by a
   block of the wrong size, so it serves only where the allocation would fail.

   Limits. No depth calls the driver, or waits. Pages that lack memory are not for this search (remap/plan.h).

   For example, stream 1 wants 6 MiB in the regular region. The quick look takes its own range of 6 MiB. Without that,
   a window may put 4 MiB of its own and 2 MiB of stream 2's together. Next, blocks that wait for streams 2 and 3,
   which stream 1 is ordered after, become stream 1's. At last a large enough range of the small region serves. */
#ifndef SG_CORE_SEARCH_TAKE_H
#define SG_CORE_SEARCH_TAKE_H

#include "core/state/device.h"

/* The need of an allocation. It is passed by reference: the compiler would put the small members of a copy together
   in memory, and reading them back at once stalls. */
struct sg_want {
    uint32_t purpose; /* of the region (device.h) */
    uint32_t units;
    enum sg_region_end end;
    bool aliases; /* pages may leave an alias for it */
    bool refused; /* the driver has refused pages for it: the amount held then counts as a limit */
    sg_slot slot; /* the stream that asks; 0: unknown, so only complete memory serves */
};

/* The first depth. Takes a block from free memory; 0: nothing fits as it is. Joins what quick lists keep where they
   might hide a range that fits. */
uint32_t sg_device_take_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock);

/* The first two depths. Takes a block as sg_device_take_locked() does, or out of a window, or of blocks whose users
   the stream is ordered after. 0: nothing fits. */
uint32_t sg_device_take_thoroughly_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock);

/* The last depth. Takes a regular block from any small or regular region. 0: none has a range for it, or the block is
   not regular. */
uint32_t sg_device_take_anywhere_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock);

/* Joins free ranges that could not be joined before their work was complete, in all regions, after pending frees that
   are over. Returns true if anything was looked at. */
bool sg_device_coalesce_completed_locked(struct sg_device *device) SG_REQUIRES(lock);

#endif
