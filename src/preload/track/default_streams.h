/* Default streams in whose order pools and graphs get memory back: as pool_streams.h, of which this is the other half.

   Why apart. Nobody can ask about these while a capture is active. A question about the legacy stream ruins a capture on a
   blocking stream, and a thread's own stream is another one in each thread. An event from before may be asked about by anybody.

   How. While no capture is active a free leaves a mark alone, because an event behind each would cost as much as the free. Whoever
   begins a capture, or waits, records an event over each context first. Such an event makes no stream wait, as one in the legacy
   stream would. Frees while a capture is active record an event in their own
   stream. A context's legacy stream has one, and so has each thread's own stream. So it is always with a driver before CUDA 12.5,
   which has no events over contexts. A capture is left alone that a record would ruin or join.

   Limits. 32 events. A further stream takes that of another one of its context, whose frees are then waited for no more. A free at
   the very moment at which another thread begins a capture may be waited for from the next free on only.

   For example, 10 MiB are freed to a pool in the legacy stream, which leaves the mark. Stream 2 is captured: before that the mark is
   taken, and an event over the context is recorded. On a card of 24 MiB cuMemCreate of 16 is refused. The event is waited for,
   the pool gives 10 MiB back, and the second call has its 16. */
#ifndef SG_DEFAULT_STREAMS_H
#define SG_DEFAULT_STREAMS_H

#include "driver/cuda_abi.h"

enum { SG_DEFAULT_STREAMS = 32 };

/* Pools will have memory back in the order of a default stream of the current context: CU_STREAM_LEGACY or
   CU_STREAM_PER_THREAD. Any thread. No lock, so a handler of a signal may do it. */
void sg_default_streams_note(CUstream named);

/* Records events over all contexts if frees have left the mark, unless a capture is active. For the moment before a capture begins,
   and before events are asked about. Any thread, without a lock of ours. */
void sg_default_streams_settle(void);

/* CUDA_SUCCESS: the last free that is noted at this place has taken effect, and its pool has the memory. In relaxed mode.
   CUDA_ERROR_NOT_READY: not yet. CUDA_ERROR_INVALID_HANDLE: nothing is noted there, or its context has gone. */
CUresult sg_default_streams_ask(int place);

/* A context has gone, and with it its events. */
void sg_default_streams_context_gone(CUcontext context);

#endif
