/* A live block that is freed, and may be in use still, is suspended: neither live nor free.

   Nouns. A *live* block is the program's. A *pending* one is freed, and waits for work of its *users*, the streams
   that may use it.

   Why apart from pending_frees.h: it changes three owners at once. The accounts move the block from allocated to
   pending, the region gives it another state, and the queue takes it in.

   For example, a block of 8 MiB that streams 1 and 2 use is suspended at time 100 for both. `pending` grows by 8 MiB,
   and the block stands in the queue `awaits_streams`. */
#ifndef SG_CORE_STREAMS_SUSPEND_H
#define SG_CORE_STREAMS_SUSPEND_H

#include "core/state/device.h"

/* Makes a live block pending until all that `slots` were given before `seq` is complete, as sg_pending_push_locked()
   says. The record of the free is the caller's. */
void sg_device_suspend_locked(struct sg_device *device, uint32_t extent, uint64_t slots, uint64_t seq) SG_REQUIRES(lock);

#endif
