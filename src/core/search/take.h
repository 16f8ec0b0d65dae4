/* The search for memory that is free and mapped already.

   Nouns. A *want* is what an allocation needs: a kind of region, units, an end, a slot. The search has three depths, each
   dearer than the one before: the quick looks, windows over the borders of ranges, and regions of another kind.

   For example, stream 1 wants 6 MiB in the regular region. The quick look takes its own range of 6 MiB. Without that, a
   window may put 4 MiB of its own and 2 MiB of stream 2's together. Without that too, a large enough range of the small
   region serves, once nothing can be mapped any more. */
#ifndef SG_CORE_SEARCH_TAKE_H
#define SG_CORE_SEARCH_TAKE_H

#include "core/state/device.h"

/* Takes a block for a slot from what is free and mapped already; 0 if nothing fits. Under `lock`. `want` by
   reference: of one passed by value the compiler puts small members together in memory, and reading them back at once
   stalls. */
struct sg_want {
    enum sg_region_kind kind;
    uint32_t units;
    enum sg_region_end end;
    bool aliases; /* pages may get a second address for it */
    bool refused; /* the driver has: what was held then is a limit too */
    sg_slot slot;
};
uint32_t sg_device_take_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock);

/* Takes a block as sg_device_take_locked() does, or after searches over neighbouring ranges and other streams' frees. */
uint32_t sg_device_take_thoroughly_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock);

/* Takes a block that is not small from any region that has a range for it: where nothing else is left. */
uint32_t sg_device_take_anywhere_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock);

/* Joins free ranges that could not be before their work was complete, in all regions. Whether anything was looked at. */
bool sg_device_coalesce_completed_locked(struct sg_device *device) SG_REQUIRES(lock);

#endif
