/* A live block that is freed, and may be in use still, is suspended: neither live nor free.

   For example, a block of 8 MiB that streams 1 and 2 use is suspended at time 100 for both. `pending` grows by 8 MiB, and
   the block stands in the queue `awaits_streams`. */
#ifndef SG_CORE_STREAMS_SUSPEND_H
#define SG_CORE_STREAMS_SUSPEND_H

#include "core/state/device.h"

/* Makes a live block pending until what `slots` were given before `seq` is complete, as of sg_pending_push_locked(). Under
   the lock. */
void sg_device_suspend_locked(struct sg_device *device, uint32_t extent, uint64_t slots, uint64_t seq) SG_REQUIRES(lock);

#endif
