/* Stream captures that are active, and frees that they put off.

   Nouns. A *capture* records the work given to a stream as nodes of a graph instead of running it. A stream *joins* one
   by waiting for an event that was recorded in it. A free is *put off* if it would ruin a capture. The *exclusion*
   keeps captures from beginning around calls of ours.

   Why. While a capture is active, nothing may be waited for or queried, and growing needs a relaxed thread
   (capture_mode.h). A call that the driver forbids ends the program's capture with an error.

   How. A begin counts before the driver is asked, so no thread takes the time until the answer for one without a
   capture. Calls of ours that could ruin one are made between exclude() and allow(); whoever begins waits for those.
   Frees that were put off are made when the last capture has ended.

   Limits. 256 captures have entries; more are only counted. 65,536 frees can be put off at once; a further one is
   answered CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.

   For example, stream A is captured, `active` is 1. A C program's thread B frees 2 MiB. The driver would allow it, so
   the free goes into the list. A's capture ends, `active` is 0, and the 2 MiB are freed by thread A, at once. */
#ifndef SG_CAPTURES_H
#define SG_CAPTURES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"
#include "track/request.h"

/* True if a capture is active, of whichever stream and thread. No lock. */
bool sg_captures_active(void);

/* True if there has ever been one: if not, none is active. */
extern atomic_bool sg_captures_begun __attribute__((visibility("hidden")));
static inline bool sg_captures_any(void)
{
    return atomic_load_explicit(&sg_captures_begun, memory_order_acquire);
}

/* True if a stream is being captured. Asks the driver, while a capture is active only. */
bool sg_captures_capturing(CUstream stream, bool per_thread);

/* Waits, for `*left_ns` at most, until no capture is active; takes the time from there. False: one still is, or this
   thread has begun one itself. Where that time was over once, nobody waits again before some capture has ended. No lock
   of ours may be held. */
bool sg_captures_await(uint64_t *left_ns);

/* Changes whenever a capture has ended, or a free that was kept for that has been made. */
extern atomic_uint sg_captures_ended __attribute__((visibility("hidden")));
static inline unsigned sg_captures_ends(void)
{
    return atomic_load_explicit(&sg_captures_ended, memory_order_acquire);
}

/* True if a thread is about to free what was kept: it may wait for that. */
bool sg_captures_runs_deferred(void);

/* Frees what was kept, unless a capture is active. */
void sg_captures_run_deferred(struct sg_core *core);

/* The stream whose capture this thread began last, of those still active. */
bool sg_captures_own(CUstream *ret);

/* True if another stream may have joined the capture that began on this one; it may then use what was allocated in
   it. True for a stream that no capture began on. */
bool sg_captures_forked(CUstream stream);

/* Around calls that a capture could be ruined by, or could begin beside. Between the two no capture begins, and no
   stream joins one. Nothing may be waited for meanwhile. They nest. */
void sg_captures_exclude(void);
void sg_captures_allow(void);

/* Changes whenever a stream may have come to be captured: not within an exclusion. */
unsigned sg_captures_joins(void);

/* In a forked child: threads that are not there any more keep nothing from beginning. */
void sg_captures_fork_child(void);

/* Around a call by which a stream may begin to be captured. */
void sg_captures_joining(void);
void sg_captures_joined(void);

/* A capture is about to begin, before the driver is asked. Counts it, so that no other thread takes the time until the
   answer for one without a capture; waits as sg_captures_joining(). Returns the joins so far, for sg_captures_list().
   After the answer come sg_captures_joined() and one of the next two. */
unsigned sg_captures_begin(void);

/* It has begun, on that stream and by this thread; `context`: the current one, NULL if not known. */
void sg_captures_list(CUstream stream, bool per_thread, CUcontext context, unsigned joins);

/* It has not begun. True: no capture is active now. */
bool sg_captures_not_begun(void);

/* The capture that began on the stream has ended. True: none is active now. For hooks/capture_end.c. */
bool sg_captures_end(CUstream stream, bool per_thread);

/* True if a capture that began on the stream is active and listed. */
bool sg_captures_is_listed(CUstream stream);

/* Waits for a context, NULL: the current one, by the driver's call for that. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
   while a capture is active, which it would ruin. A capture that is to begin waits for the call to be made. That takes as
   long as the thread is kept from running, a second at most. */
CUresult sg_captures_wait(CUcontext context);

/* True if such a wait of a helper thread has begun, which a capture that begins now lets go on. */
bool sg_captures_waits_aside(void);

/* Waits for the current context from a helper thread, for which no thread of the program's may wait. While a capture
   is live it returns CUDA_ERROR_NOT_READY instead. */
CUresult sg_captures_wait_aside(void);

/* A context has gone, with its captures and the blocks that were to be freed. */
void sg_captures_context_gone(CUcontext context);

/* While a capture is active: defers a free to its end, and answers as the driver would.
   CUDA_ERROR_INVALID_VALUE: not the start of a live block, or freed already. */
CUresult sg_captures_defer_free(struct sg_core *core, CUdeviceptr address, const struct sg_request *request);

/* Bytes of a device that are kept so, for who reports them: others may free and park meanwhile. */
uint64_t sg_captures_deferred_bytes(struct sg_core *core, int device);

#endif
