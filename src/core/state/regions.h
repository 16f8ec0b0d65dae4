/* Regions of a device: addresses are reserved for blocks of a kind, and kept for good.

   Kinds: small blocks, regular ones, and huge ones, each of which has a region of one page to itself. Why for good: an
   address is looked up without a lock, among ranges that are only ever appended. Limits: SG_REGIONS_MAX a device.

   For example, a card of 24 GiB gets a regular region of 48 GiB of addresses, so that a block can be placed beside what
   stays. Does the driver refuse 48, 24 are asked for, and so on down to the size of the block. */
#ifndef SG_CORE_STATE_REGIONS_H
#define SG_CORE_STATE_REGIONS_H

#include "core/state/device.h"

/* Whether a block of `units` may stand in a region: one for huge blocks has one page, which must fit. */
static inline bool sg_device_suits_locked(const struct sg_device *device, uint32_t index, enum sg_region_kind kind,
    uint32_t units) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_region *region = device->regions.region[index];
    return device->regions.kind[index] == kind &&
           (kind != SG_KIND_HUGE ||
               (region->units >= units && region->units - units < device->granularity >> SG_UNIT_SHIFT));
}

/* Adds a region of at least `bytes` for `kind`. The driver is asked for addresses; a huge block takes those of one
   that is gone, if they suffice. Ranges of addresses are kept for good, so looking an address up needs no lock.
   CUDA_ERROR_OUT_OF_MEMORY: there are as many as there may be, or the host has no memory. CUDA_ERROR_NOT_SUPPORTED:
   the driver gave no addresses. Holds `grow`. */
CUresult sg_device_add_region_growing(struct sg_device *device, enum sg_region_kind kind, uint64_t bytes)
    SG_REQUIRES(grow);

/* Its memory management has failed an allocation, in the section that says so in the trace. */
void sg_device_note_refusal_locked(struct sg_device *device) SG_REQUIRES(lock) SG_REQUIRES(grow);

#endif
