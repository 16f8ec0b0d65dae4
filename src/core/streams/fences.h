/* Fences: the allocator's own events on streams and contexts, and what their completion shows. They are recorded when
   they can give news, a few outstanding, oldest first. pending_frees.c acts on their answers. Driver calls are never
   made with `lock` held; most are with `asking`..

   Limits: SG_FENCES are out at once. No event is recorded while a capture is live, nor on a stream that would take it for a
   step of its own.

   For example, stream 1 frees 2 MiB at time 100, and others lack memory. A fence is recorded on stream 1 at time 105. Once
   the driver says that it has passed, all that stream 1 was given before 105 is complete: any stream may have the 2 MiB. */
#ifndef SG_CORE_STREAMS_FENCES_H
#define SG_CORE_STREAMS_FENCES_H

#include "core/state/device.h"

/* Whether fences can tell when all present work is complete: they stand over each context, which drivers before CUDA 12.5
   cannot do. */
bool sg_fences_can_cover_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* Whether a helper thread can wait for all work instead, where no fence tells of it. No lock needed. */
bool sg_fences_can_wait(const struct sg_device *device);

/* Asks the driver what is complete. QUERY: by the fences that are out. FENCE: also records some, if those give no
   news. WAIT: waits for the oldest where nothing else helps. Returns whether there was news, here or in another
   thread. No lock may be held. */
enum sg_ask { SG_ASK_QUERY, SG_ASK_FENCE, SG_ASK_WAIT };
bool sg_device_ask(struct sg_device *device, enum sg_ask how);

/* Waits until what was freed so far is complete: for whoever asks for memory to be given back, which natively waits
   too. */
void sg_device_drain(struct sg_device *device);

/* A stream is about to be destroyed. A fence goes on it first, and the slot is free for another stream once that has
   passed. Calls the driver; no lock may be held. */
void sg_fences_end_slot(struct sg_device *device, sg_slot slot);

#endif
