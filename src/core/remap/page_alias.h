/* Pages at two addresses. Memory that a stream may use again, although work on it is not complete, can be needed at
   another address. Its pages are mapped there at once, and stay mapped where they were until that work is complete. So
   nobody waits. The programming guide allows that where no two overlapping kernels write and read through both
   addresses (CUDA C++ Programming Guide, "Virtual Aliasing Support"). The order of the streams excludes such kernels.

   A stale address is a busy extent in the device's queue of them: a stale mapping. A page with one (SG_PIN_TWICE) is
   not unmapped before the stale mapping is. It may become a stale address itself. Pages that are wanted again and again
   while the GPU lags have a chain of them, each of which names the next.

   For example, stream 1 frees pages 10 and 11 at 0x1000000 and needs 4 MiB at 0x5000000 while its kernels still run. Both
   pages are mapped there as well. 0x1000000 is stale: it stays mapped, in the queue, until the work of before the move is
   complete, and is unmapped then. */
#ifndef SG_CORE_REMAP_PAGE_ALIAS_H
#define SG_CORE_REMAP_PAGE_ALIAS_H

#include "core/state/device.h"

struct sg_page_run { /* whole pages being taken from one place, in address order */
    struct sg_region *region;
    uint32_t first, pages, busy;
    bool alias;    /* its pages keep this address for now */
    bool unmapped; /* its pages are elsewhere, or given back */
    bool lost;     /* and its addresses cannot be used again */
};

/* Whether pages may have two addresses for the stream of `slot`, which wants `bytes`. Asks whether a capture is live, and
   may have the device tried. No lock held. */
bool sg_alias_allowed(struct sg_device *device, sg_slot slot, size_t bytes);

/* Pages of a region that may get a second address now, at most. */
uint32_t sg_alias_room_locked(const struct sg_device *device, const struct sg_region *region) SG_REQUIRES(lock);

/* A run's pages are mapped at their new place, which is page by page `target` of `region`: where they were is an old
   address. Under `lock`. */
void sg_alias_keep_locked(struct sg_device *device, const struct sg_page_run *run, struct sg_region *region,
    const CUmemGenericAllocationHandle *target) SG_REQUIRES(lock);

/* The stream of `slot` is given memory at an address at which its earlier work did not use it. */
static inline void sg_alias_note_slot(struct sg_device *device, sg_slot slot)
{
    atomic_fetch_or(&device->aliases.slots, UINT64_C(1) << slot);
}

/* Unmaps stale addresses the work on which is complete. Holds `grow`, not the lock. */
void sg_alias_unmap_completed_growing(struct sg_device *device) SG_REQUIRES(grow);

#endif
