/* The accounts of a device: blocks as they come and go, pages as they come and go, and the figures that follow.

   Nouns. *Requested* is what the program asked for, *allocated* the same after rounding, *pending* what was freed and
   may be in use. *Active* is the last two together. *Reserved* is the physical memory held, *stranded* what of it is
   not active.

   Why one place: statistics, the limit and the trace must agree, so every change of these passes here. The stream,
   site and time of a block are noted here too. Limits: what follows from walks over regions is brought up to date
   when somebody asks (sg_usage_derive_locked()), since an allocation has no time for that.

   For example, 1,000 bytes are handed out as two units: `requested` grows by 1,000, `allocated` and `active` by
   1,024. Its free after work of two streams takes 1,000 from `requested` and 1,024 from `allocated`, and adds 1,024
   to `pending`. Once that work is complete, `pending` and `active` fall by 1,024. `reserved` stays: the page is
   stranded by so much. */
#ifndef SG_CORE_STATE_ACCOUNTS_H
#define SG_CORE_STATE_ACCOUNTS_H

#include "core/state/device.h"

/* Brings the figures up to date that follow from others: stranded, mappings, and inactive split bytes. After growing,
   and before a snapshot. */
void sg_usage_derive_locked(struct sg_device *device) SG_REQUIRES(lock);

/* Accounts for pages that came to a region, or with a negative number went from it. */
void sg_device_count_pages_locked(struct sg_device *device, struct sg_region *region, int64_t pages) SG_REQUIRES(lock);

/* Takes those of pages that went out of the books which were far ones: returns how many. */
uint32_t sg_device_uncount_far_locked(struct sg_device *device, struct sg_region *region, uint32_t first,
    uint32_t pages) SG_REQUIRES(lock);

/* Bytes of whole free pages that may be unmapped now, in all regions. */
uint64_t sg_device_idle_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* Fills in a block that a region has just given, accounts for it, and emits its record. `bytes` are as asked for.
   Returns the block's address. */
CUdeviceptr sg_device_hand_out_locked(struct sg_device *device, uint32_t extent, size_t bytes, const struct sg_tag *tag)
    SG_REQUIRES(lock);

/* Accounts for a live block that is no longer the program's. It stays active. */
void sg_device_account_free_locked(struct sg_device *device, const struct sg_extent *extent) SG_REQUIRES(lock);

/* Accounts for a live block whose memory goes to sleep, or comes back. It stays alive, and is not allocated meanwhile:
   nothing of it is on the device. */
void sg_device_account_paused_locked(struct sg_device *device, const struct sg_extent *extent) SG_REQUIRES(lock);
void sg_device_account_woken_locked(struct sg_device *device, const struct sg_extent *extent) SG_REQUIRES(lock);

/* Frees a paused block, and accounts for it. The record is the caller's. */
void sg_device_release_paused_locked(struct sg_device *device, uint32_t extent) SG_REQUIRES(lock);

/* Frees an extent that is a block or pending, and accounts for it. Its memory is free for `owner` at once, and for
   others once they are ordered after what the owner was given before `seq`. 0 and 0: it is free for all. The record
   is the caller's, who knows why it is freed. */
void sg_device_release_locked(struct sg_device *device, uint32_t extent, sg_slot owner, uint64_t seq) SG_REQUIRES(lock);

/* Frees every live block of a region that was allocated in `context`; NULL: all. With a record each, for all streams
   at once. For the end of a context, and of the core. */
void sg_device_release_all_locked(struct sg_device *device, struct sg_region *region, CUcontext context)
    SG_REQUIRES(lock);

/* Notes that a live block is used on the stream of `slot` too, and emits that once. Slot 0: on streams that are not
   followed, so its free will wait for all work. */
void sg_device_record_stream_locked(struct sg_device *device, uint32_t extent, sg_slot slot) SG_REQUIRES(lock);

/* Coalesces what stands on quick lists, in all regions. Before free memory is counted, cut or placed in. Returns true
   if there was anything. */
bool sg_device_drain_quick_lists_locked(struct sg_device *device) SG_REQUIRES(lock);

/* True if free memory belongs, or belonged, to a stream other than that of `slot`. Plans then take such pages first
   as others cannot use (remap/plan.c). */
bool sg_device_is_shared_locked(const struct sg_device *device, sg_slot slot) SG_REQUIRES(lock);

#endif
