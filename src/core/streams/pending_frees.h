/* Frees that take effect later: after work of some streams, or after all work that there is. An *epoch* is a group
   of the latter that shares its fences (fences.c)..

   For example, a block that streams 1 and 2 use is freed at time 100 by stream 1. Stream 1 waits for an event of stream 2
   that was recorded at time 110. It is ordered after stream 2's work of before 100, and the block is stream 1's at the next
   sg_pending_settle_locked(). Without such a wait a fence on stream 2 that has passed frees it. */
#ifndef SG_CORE_STREAMS_PENDING_FREES_H
#define SG_CORE_STREAMS_PENDING_FREES_H

#include "core/state/device.h"

/* Appends a suspended extent, which is free after what `slots` were given before `seq`; bit 0: all streams of the
   context. Under `lock`, like all of these. */
void sg_pending_push_locked(struct sg_device *device, uint32_t extent, uint64_t slots, uint64_t seq) SG_REQUIRES(lock);
/* What `slots` were given before `seq` is complete. */
void sg_pending_complete_locked(struct sg_device *device, uint64_t slots, uint64_t seq) SG_REQUIRES(lock);
/* Epochs whose fences have all passed are over. */
void sg_pending_settle_epochs_locked(struct sg_device *device) SG_REQUIRES(lock);
/* A context is gone, NULL: all are: so is its work, and the events in it. */
void sg_pending_forget_locked(struct sg_device *device, CUcontext context) SG_REQUIRES(lock);
/* Frees of blocks that were used on several streams take effect, as far as is known. Such a block is its own
   stream's once that is ordered after the others. */
void sg_pending_settle_locked(struct sg_device *device) SG_REQUIRES(lock);
/* Such blocks go to `slot`, which needs memory, where it is ordered after all users. Returns whether there was any. */
bool sg_pending_inherit_locked(struct sg_device *device, sg_slot slot) SG_REQUIRES(lock);

#endif
