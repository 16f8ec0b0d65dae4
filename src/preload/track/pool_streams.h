/* Streams in whose order pools and graphs get memory back.

   Why. Such memory is the device's once the stream has come to the free and the host has waited. Where a device has run
   out, the library waits. A wait for a context would ruin a capture, so there the streams themselves are waited for. That
   is legal in relaxed mode for a stream that is not captured.

   How. A free to a pool, and a launch of a graph with memory of its own, note their stream. A stream that is about to be
   destroyed is taken out. An end waits until no call of ours names a stream of the table.

   Limits. 64 streams; a further one takes the place of the oldest. Default streams are apart (default_streams.h).

   For example, stream 1 is to free 10 MiB of a pool behind a kernel, and stream 2 is captured. On a card of 24 MiB
   cuMemCreate of 16 is refused. Stream 1 is asked until the kernel is done, the pool gives 10 MiB back, and the second
   call has its 16. */
#ifndef SG_POOL_STREAMS_H
#define SG_POOL_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

/* Pools or graphs will have memory back in the order of this stream; `per_thread` as for sg_stream_named(). Any thread. No
   lock, so a handler of a signal may do it. */
void sg_pool_streams_note(CUstream stream, bool per_thread);

/* A stream is about to be destroyed. Returns once no other thread asks about it. */
void sg_pool_streams_gone(CUstream stream);

/* A context has gone, with its streams. */
void sg_pool_streams_context_gone(CUcontext context);

/* Waits for the work of these streams, all together for so long at most, and ruins no capture. True: one has come to its end, so
   asking the driver again can help. No lock of ours is held. */
bool sg_pool_streams_waited(uint64_t limit_ns);

#endif
