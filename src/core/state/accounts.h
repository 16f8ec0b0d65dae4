/* The accounts of a device: blocks as they come and go, pages as they come and go, and the figures that follow.

   Every change of what is allocated, pending or reserved passes here, so statistics, the limit and the trace agree. What a
   block is, its stream, site and time, is noted here too.

   For example, 300 MiB are handed out as 300.5 MiB rounded: `requested` grows by 300, `allocated` and `active` by 300.5.
   Its free after work of two streams moves 300.5 MiB from `allocated` to `pending`; once that work is complete, `active`
   falls by 300.5. */
#ifndef SG_CORE_STATE_ACCOUNTS_H
#define SG_CORE_STATE_ACCOUNTS_H

#include "core/state/device.h"

/* Figures that follow from others, brought up to date. Under `lock`, after growing and before a snapshot. */
void sg_usage_derive_locked(struct sg_device *device) SG_REQUIRES(lock);

/* Accounts for pages that came to, or went from, a region. */
void sg_device_count_pages_locked(struct sg_device *device, struct sg_region *region, int64_t pages) SG_REQUIRES(lock);

/* Whole, unpinned free pages, in bytes. */
uint64_t sg_device_idle_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* A block has been carved: fill it in, account for it, tell the observer. */
CUdeviceptr sg_device_hand_out_locked(struct sg_device *device, uint32_t extent, size_t bytes, const struct sg_tag *tag)
    SG_REQUIRES(lock);

/* Releases an extent that is a block or pending, and accounts for it. The memory is free for `owner`, and for others
   after `seq`; 0, 0: for all. */
void sg_device_release_locked(struct sg_device *device, uint32_t extent, sg_slot owner, uint64_t seq) SG_REQUIRES(lock);

/* Releases every live block of a region that was allocated in `context` (NULL: all). */
void sg_device_release_all_locked(struct sg_device *device, struct sg_region *region, CUcontext context)
    SG_REQUIRES(lock);

/* A live block is used on the stream of `slot` too; slot 0: on streams that are not followed. */
void sg_device_record_stream_locked(struct sg_device *device, uint32_t extent, sg_slot slot) SG_REQUIRES(lock);

/* Merges what is cached in all regions. Under `lock`, before free memory is counted, cut or placed in. Whether there
   was anything. */
bool sg_device_drain_quick_lists_locked(struct sg_device *device) SG_REQUIRES(lock);

/* Whether other streams than `slot` have free memory, or had. */
bool sg_device_is_shared_locked(const struct sg_device *device, sg_slot slot) SG_REQUIRES(lock);

#endif
