/* The queues of streams: how work enters them, how threads wait for it, and how a stream leaves its context.

   `work/submit.h` asks before whether work enters a queue or a capture. For example, work for the legacy stream depends
   on the last piece of each blocking stream of its context, and theirs on its last piece. */
#ifndef SIM_QUEUE_H
#define SIM_QUEUE_H

#include "streams/work.h"

/* All locked. */

/* Queues `work`, adding what the legacy stream's rules and cuCtxWaitEvent demand. Where the stream's queue is full it
   waits, giving up the lock meanwhile. Owns `work` in any case. `waits`: the caller waits for it next. */
CUresult sim_enqueue(CUstream stream, struct sim_work *work, bool waits, uint64_t *ret_position);
/* Waits without the lock, takes it again. Returns the context's sticky error, if any. */
CUresult sim_wait(CUstream stream, uint64_t position);
CUresult sim_wait_stream(CUstream stream);
CUresult sim_wait_context(CUcontext context);
CUresult sim_wait_device(struct sim_device *device);
/* Gives the point at which all work submitted to the context so far is complete: a position of its marker stream. */
CUresult sim_context_point(CUcontext context, struct sim_work *work, uint64_t *ret_position);
/* The stream, which takes part in no capture, leaves its context; queued work is still done, or with `forget` forgotten. */
void sim_stream_close(CUstream stream, bool forget);

#endif
