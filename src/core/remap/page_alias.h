/* Aliases: pages move without a wait, and keep their old address until queued work there is complete.

   Nouns. An *alias* is the address that a moved page keeps for a while. The page is then mapped at two addresses, of
   which only the new one serves blocks. The statistic late_unmaps counts aliases that were unmapped.

   Why: a kernel that is queued on the stream may touch the old address, so the page can't be unmapped there yet. The
   stream itself may use the memory again at once, because its next kernel comes after that one. Without an alias it
   would wait for the GPU, or take new memory.

   How. The page is mapped at its new place while it stays mapped at the old one. The old pages become a busy extent
   in the device's queue of aliases. A fence shows when the work of before the move is complete. The next thread that
   grows then unmaps them, oldest first, and they are a hole. A page with an alias (SG_PIN_ALIASED) is not unmapped
   before its alias is. It may move again, and its address becomes an alias too. So pages that are wanted again and
   again while the GPU lags have a chain of aliases, each of which names the next.

   Limits. CUDA allows two addresses where no two overlapping kernels write and read through both (CUDA C++
   Programming Guide, "Virtual Aliasing Support"). The order of the stream excludes that, but for kernels that begin
   early by programmatic launch (sg_core_take_aliased()). No capture is live, no peer has access, and the page is not
   pinned. Mappings and addresses must be to spare. No GPU has been asked; preload/services/alias_probe.c tries a
   device before its first alias.

   For example, pages are of 2 MiB. Stream 1 has four blocks of 8 MiB from 0x7f0000400000 on. It frees the first and
   the third while its kernels still run, and asks for 16 MiB under reserve_slack:1.0. All 8 free pages move to
   0x7f0002400000. The page that was at 0x7f0001400000, where the third block stood, comes first there.
   `aliased_bytes` is 16 MiB, and still 32 MiB are reserved. When the kernels have ended, the stream's next request
   that grows unmaps 0x7f0000400000 and 0x7f0001400000, 8 MiB each. Both are holes then, and `late_unmaps` is 8.
   (tests/core/test_worked_cases.c) */
#ifndef SG_CORE_REMAP_PAGE_ALIAS_H
#define SG_CORE_REMAP_PAGE_ALIAS_H

#include "core/state/device.h"

/* A run: whole pages that are taken from one place, in address order. */
struct sg_page_run {
    struct sg_region *region;
    uint32_t first, pages; /* pages of the region */
    uint32_t busy;         /* their extent */
    bool alias;            /* the pages keep this address for now */
    bool unmapped;         /* they are elsewhere, or were given back */
    bool lost;             /* and their addresses cannot be used again */
};

/* True if pages may leave an alias for the stream of `slot`, which wants `bytes`. It asks whether a capture is live,
   and may have the device tried, which calls the driver. Emits the answer. The caller holds no lock. */
bool sg_alias_allowed(struct sg_device *device, sg_slot slot, size_t bytes);

/* How many pages of a region may leave an alias now, as mappings and addresses go. A region of which more than half
   is mapped gives none: its addresses are needed for blocks. */
uint32_t sg_alias_room_locked(const struct sg_device *device, const struct sg_region *region) SG_REQUIRES(lock);

/* Makes the place of a run, whose pages are mapped at page target[0], target[1] … of `region` by now, aliases, and
   queues them. */
void sg_alias_keep_locked(struct sg_device *device, const struct sg_page_run *run, struct sg_region *region,
    const CUmemGenericAllocationHandle *target) SG_REQUIRES(lock);

/* Notes that the stream of `slot` is given memory at an address at which its earlier work did not use it, for
   sg_core_take_aliased(). */
static inline void sg_alias_note_slot(struct sg_device *device, sg_slot slot)
{
    atomic_fetch_or(&device->aliases.slots, UINT64_C(1) << slot);
}

/* Unmaps all aliases on which work is complete. One that the driver does not unmap is lost: its address is never used
   again, and its page is an ordinary one. Takes `lock` for moments. */
void sg_alias_unmap_completed_growing(struct sg_device *device) SG_REQUIRES(grow);

#endif
