/* Streams of the program, and the slot of each in the core. The core follows the order of a program's work by slots.

   Nouns. A *slot* is a small number by which the core knows a stream on one device; its clock counts the steps of the
   stream. A stream is *followed* if it has one. Its order is *untracked* if it comes after work that nobody here knows.
   A stream is *foreign* on a device whose memory it uses though it is another device's.

   Why numbers. A stream is known by the number that the driver gives it (cuStreamGetId), which is never used again, not
   by its handle. Handles 0, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, and 0 in a per-thread call are different streams in
   each context and each thread. A destroyed stream's handle comes back while its work still runs.

   Limits. 512 streams have a slot. Once a stream has none, frees can't know all users any more, and wait for all work
   instead.

   For example, stream 0x7f10 has number 41. Its first kernel makes slot 3 on device 0, and steps 1, 2 and 3 follow. It
   is destroyed; slot 3 lives until step 3 is complete. A new stream gets the handle 0x7f10 and number 58: slot 4. */
#ifndef SG_STREAMS_H
#define SG_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/core.h"
#include "order/stream_clock.h"
#include "track/stream_handle.h"

struct sg_thread;

struct sg_tracked_stream {
    int device;
    sg_slot slot;
    int entry; /* of the list here */
};

/* Order is followed once somebody orders by streams (sg_follow()), from then on for good: no hook of this kind does
   anything before. sg_follow_late(): that was after the first allocation, so that something may have been missed. No
   lock. */
extern atomic_bool sg_following_order __attribute__((visibility("hidden")));
static inline bool sg_following(void)
{
    return atomic_load_explicit(&sg_following_order, memory_order_relaxed);
}
void sg_follow(void);
bool sg_follow_late(void);

/* Starts to follow it where `free_sync` leaves room for that: a caller names its streams. */
void sg_follow_as_configured(void);

/* The program gives streams work, or orders them, by the call `by`, which is in no table. From then on, for good, no
   wait of it is trusted, and a free waits for all work that there is. `by` stays readable for good.
   sg_streams_untracked_by(): the first such call; NULL where there was none. Any thread, no lock. */
void sg_streams_untrack(const char *by);
bool sg_streams_untracked(void);
const char *sg_streams_untracked_by(void);

/* Where a stream as a caller names it is followed; `per_thread`: 0 is the thread's own. False: it isn't, and frees that
   depend on it must wait in another way. All between sg_enter() and sg_leave(), holding no lock of ours; the first call
   for a stream asks the driver. sg_streams_find() makes no slot for a stream that has none. */
bool sg_streams_track(struct sg_core *core, CUstream stream, bool per_thread, struct sg_tracked_stream *ret);
bool sg_streams_find(struct sg_core *core, CUstream stream, bool per_thread, struct sg_tracked_stream *ret);

/* A cache of each thread: the slot of a stream that was named in `context`. False: a miss. True with *ret 0: the
   stream is not followed. No lock. */
bool sg_streams_remembered(struct sg_thread *self, CUstream named, CUcontext context, int device, sg_slot *ret);

/* The place of a stream among those that use memory of `device`, whichever its own device is. */
bool sg_streams_track_on(struct sg_core *core, CUstream stream, int device, struct sg_tracked_stream *ret);

/* The context and the device of a stream, followed or not; NULL, false: the driver does not say. */
CUcontext sg_streams_context_of(CUstream stream);
bool sg_streams_device(CUstream stream, int *ret_device);

/* Memory of the device is given out from here on: its streams are followed. Before that on any, nothing can be known
   that matters. */
void sg_streams_serve(int device);
bool sg_streams_any_served(void);

/* True if every stream that was met on those devices has a slot: else nobody knows who could have seen a block. */
bool sg_streams_complete(void);

/* The stream's later work comes after something that can't be followed. */
void sg_streams_untracked_order(struct sg_core *core, const struct sg_tracked_stream *tracked);
bool sg_streams_is_untracked_order(const struct sg_tracked_stream *tracked);
bool sg_streams_any_untracked_order(void); /* from the first one on */
CUcontext sg_streams_context(const struct sg_tracked_stream *tracked);

/* All streams of a context, which can't be followed for a moment (a wait of the whole context). */
void sg_streams_untracked_order_of(struct sg_core *core, CUcontext context);

/* Before order is followed a stream has been made to wait for memory, or for what a graph waits for. That wait may last
   until long after, and which stream it was is not kept: all are opaque. */
void sg_streams_waited_early(void);

/* A whole context has waited for an event. That is ordered before the next step of each of its streams, made later
   or not. From here on an idle stream says nothing of what its next step is ordered after. */
void sg_streams_context_waited(void);
bool sg_streams_idle_completes(void);

/* The driver has made a stream with this handle. One that was destroyed unseen may have had it: what threads remember of the
   handle ends. */
void sg_streams_new_handle(CUstream stream);

/* The stream is about to be destroyed. Its slots outlive it until the work that it was given is complete. Not between
   sg_enter() and sg_leave(); asks the driver for its number. */
void sg_streams_retire(CUstream stream);

/* A context has gone, and its streams with it. */
void sg_streams_context_gone(CUcontext context);

/* Work may have been given to a stream; after the driver's call. */
void sg_streams_submitted(CUstream stream, bool per_thread);
static inline void sg_submitted(CUstream stream, bool per_thread)
{
    if (sg_following())
        sg_streams_submitted(stream, per_thread);
}

/* The host may observe the end of a stream's work without a call: by a function of the host, or a copy to it. Where
   nobody records the users of a block, the host may pass it to any stream then. Called before the driver's call,
   since another thread may act on what it sees before that returns. Called again after it, since others may have
   given the stream more meanwhile. */
void sg_streams_host_may_observe(CUstream stream, bool per_thread);

/* The same around a launch of a graph, which may have functions of the host. Where each user of a block is recorded a graph counts only from
   sg_streams_graphs_show() on: one was captured, or made, with such work. */
void sg_streams_graph_launched(CUstream stream, bool per_thread);
void sg_streams_graphs_show(void);

/* For `check` alone. Others may come after what any stream was given so far: an event was recorded over a context, or where no stream is followed. */
void sg_streams_shown_all(struct sg_core *core);

/* True if it matters what the host may observe: users of a block are guessed, or `check` is on. No lock. */
bool sg_streams_shown_matters(void);

/* `check` gives streams work of its own. So it is to be known who may come after them, also where each user of a block is recorded. */
void sg_streams_watch_shown(void);

/* The host has observed the end of work that is not followed, so it may have observed any.
   sg_streams_host_may_observe_all(): for a caller outside of sg_enter() and sg_leave(), and where it matters only, as
   sg_streams_host_may_observe(). */
void sg_streams_host_observed_all(struct sg_core *core);
void sg_streams_host_may_observe_all(void);

#endif
