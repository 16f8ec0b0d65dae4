/* Fences: the allocator's own events on streams and contexts, and what follows when they have passed.

   Nouns. A *fence* is a CUDA event that the core has recorded on a stream, or over a context. It is *out* until the
   driver says that it has *passed*. *News* means that something is complete which was not known to be. An *epoch* is
   a group of frees that wait for all work; the fences over all contexts at its end show when that is complete.

   Why on demand: an event costs a call of the driver, and a program frees far more often than it lacks memory. So
   fences are recorded where other streams' memory might serve a request that grows, and at the end of an epoch.

   How. One thread at a time asks, under `asking`. It queries the fences that are out, oldest first. If those give no
   news, it records some on all streams after whose work memory was freed since their last fence (`needs_fence`). If
   asked to wait, it waits for the oldest. pending_frees.c acts on the answers.

   Limits. SG_FENCES (1,024) are out at once, and 64 for one stream (R35). No event is recorded while a capture is
   live; those from before are asked about and waited for. None goes on a thread's default stream, which other threads cannot name. None goes on a legacy stream that
   the program does not use (R36). An event over the context covers those. A driver before CUDA 12.5 records none over
   a context; a helper thread waits there instead.

   For example, stream 1 frees 2 MiB at time 100, and others lack memory. A fence is recorded on stream 1 at time 105.
   Once the driver says that it has passed, all that stream 1 was given before 105 is complete: any stream may have
   the 2 MiB. Stream 2 had freed nothing since its last fence, so none was recorded there. */
#ifndef SG_CORE_STREAMS_FENCES_H
#define SG_CORE_STREAMS_FENCES_H

#include "core/state/device.h"

/* True if fences can show when all present work is complete: the driver records events over contexts, and each
   context is known. */
bool sg_fences_can_cover_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* True if a helper thread can wait for all work instead, where the driver records no events over contexts. No lock
   needed. */
bool sg_fences_can_wait(const struct sg_device *device);

/* Asks the driver what is complete. QUERY: by the fences that are out. FENCE: also records some, if those give no
   news. WAIT: also waits for the oldest, if nothing else helps. Returns true if there was news, here or in another
   thread. With WAIT another thread may be asking: then this one waits for that, and returns true. In a replay it does
   nothing. Takes `asking` and `lock`; the caller holds no lock. */
enum sg_ask { SG_ASK_QUERY, SG_ASK_FENCE, SG_ASK_WAIT };
bool sg_device_ask(struct sg_device *device, enum sg_ask how);

/* Waits until all work is complete after which memory was freed so far. Before memory is given back on request, where
   the driver would wait too. While a capture is live nothing is recorded, so only what was recorded before is waited for.
   Takes locks as sg_device_ask(). */
void sg_device_drain(struct sg_device *device);

/* Waits for the work that the streams of `slots` were given so far, by a fence on each; with `contexts` for all work of the
   device's contexts, and with `everywhere` of all devices'. Nothing else is waited for. CUDA_ERROR_NOT_READY: a wait was
   given up. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: a capture is live. In a replay it does nothing. Takes `asking` and
   `lock`; the caller holds no lock. */
CUresult sg_fences_await(struct sg_device *device, uint64_t slots);
CUresult sg_fences_await_contexts(struct sg_device *device, bool everywhere);

/* Ends the slot of a stream that is about to be destroyed. A fence goes on it first, and the slot is free for another
   stream once that has passed. Calls the driver, and takes `asking` and `lock`. */
void sg_fences_end_slot(struct sg_device *device, sg_slot slot);

#endif
