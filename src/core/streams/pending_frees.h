/* Pending frees: frees that take effect once queued work is complete.

   Nouns. A *pending* block is freed by the program, and may still be in use by the GPU: neither live nor free. There
   are two queues. `awaits_streams` has blocks that wait for work of some streams, `awaits_all` those that wait for
   all work that there was, of all contexts. An *epoch* is a group of the latter that share their fences (fences.h).

   Why two queues: the first kind becomes free by what streams wait for, in any order. The second becomes free oldest
   first, by fences alone, so its queue is only looked at in front.

   How. A block that waits for streams belongs to its own stream again as soon as that is ordered after the others. It
   is free for all once their work is complete. A stream that lacks memory may have it too, if it is ordered after all
   users. The queue is looked through when the clocks have changed since the last time.

   Limits. Pending memory is bounded only where memory is short (pending_limit). Work that never ends keeps it.

   For example, a block that streams 1 and 2 use is freed at time 100 by stream 1. Stream 1 waits for an event of
   stream 2 that was recorded at time 110. It is ordered after stream 2's work of before 100, and the block is stream
   1's at the next sg_pending_settle_locked(). Without such a wait a fence on stream 2 that has passed frees it. */
#ifndef SG_CORE_STREAMS_PENDING_FREES_H
#define SG_CORE_STREAMS_PENDING_FREES_H

#include "core/state/device.h"

/* Appends a suspended extent to its queue: it is free after all that `slots` were given before `seq`. Bit 0: after
   all work of all contexts. Marks that a fence is worth recording there. */
void sg_pending_push_locked(struct sg_device *device, uint32_t extent, uint64_t slots, uint64_t seq) SG_REQUIRES(lock);

/* Notes that all that `slots` were given before `seq` is complete. With bit 0, blocks that waited for all work until
   then are free now. Those that waited for streams are free at the next sg_pending_settle_locked(). */
void sg_pending_complete_locked(struct sg_device *device, uint64_t slots, uint64_t seq) SG_REQUIRES(lock);

/* Ends the epochs whose fences have all passed, and frees their blocks. */
void sg_pending_settle_epochs_locked(struct sg_device *device) SG_REQUIRES(lock);

/* Notes that a context is gone, or with NULL all are. Its work is complete and its events are gone, unasked. With the
   last context of the device everything pending is free. */
void sg_pending_forget_locked(struct sg_device *device, CUcontext context) SG_REQUIRES(lock);

/* Frees the blocks that waited for streams, as far as the clocks say. A block goes to its own stream once that is
   ordered after the others, and to all once their work is complete. */
void sg_pending_settle_locked(struct sg_device *device) SG_REQUIRES(lock);

/* Gives such blocks to `slot`, which lacks memory, where that is ordered after all users. Returns true if there was
   any. */
bool sg_pending_inherit_locked(struct sg_device *device, sg_slot slot) SG_REQUIRES(lock);

#endif
