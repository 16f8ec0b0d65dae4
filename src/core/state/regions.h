/* Regions of a device: addresses are reserved for blocks of a kind, and kept for good.

   Kinds: small blocks, regular ones, huge ones and those for overflow. A huge one has a region of one page to itself. Why
   for good: an address is looked up without a lock, among ranges that are only ever appended. So cudaFree of foreign memory
   costs a few comparisons, and a forked child can still say whose an address is. Why so many addresses: they cost
   nothing, and a block can then be placed beside what stays. Limits: SG_REGIONS_MAX (64) regions a device.

   For example, a card of 24 GiB gets a small region of 3 GiB of addresses, SG_SMALL_REGION_SHARE, and a regular one
   of 48 GiB. If the driver refuses 48, then 24 are asked for, and so on down to the size of the block. A huge block
   of 13 GiB gets a region of 24 GiB of addresses, of which it uses the first 13. When it is freed, a block of 20 GiB
   takes over all that. */
#ifndef SG_CORE_STATE_REGIONS_H
#define SG_CORE_STATE_REGIONS_H

#include "core/state/device.h"

/* True if a block of `units` for that purpose may stand in a region. A huge block's region has one page. It must be as
   large as the block is when rounded to a granule, since nothing else would use the rest. */
static inline bool sg_device_suits_locked(const struct sg_device *device, uint32_t index, uint32_t purpose,
    uint32_t units) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_region *region = device->regions.region[index];
    return device->regions.purpose[index] == purpose &&
           (!sg_kind_has_one_page(sg_purpose_kind(purpose)) ||
               (region->units >= units && region->units - units < device->granularity >> SG_UNIT_SHIFT));
}

/* True if a region is one for overflow: some of its pages may be the host's. */
static inline bool sg_device_is_overflow_locked(const struct sg_device *device, const struct sg_region *region)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return sg_purpose_kind(device->regions.purpose[region->index]) == SG_KIND_OVERFLOW;
}

/* Adds a region of at least `bytes` for a purpose. The driver is asked for addresses; a huge block takes those of one
   that is gone, if they suffice. CUDA_ERROR_OUT_OF_MEMORY: the device has as many regions as it may have, or the host
   has no memory. CUDA_ERROR_NOT_SUPPORTED: the driver gave no addresses. Takes `setup` and `lock` for moments. */
CUresult sg_device_add_region_growing(struct sg_device *device, uint32_t purpose, uint64_t bytes) SG_REQUIRES(grow);

/* Counts an allocation that the driver's memory management has failed twice, in the section that says so in the
   trace. After SG_REFUSALS_MOST (8) of them fixed segments serve (grow.c). */
void sg_device_note_refusal_locked(struct sg_device *device) SG_REQUIRES(lock) SG_REQUIRES(grow);

#endif
