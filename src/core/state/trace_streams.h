/* Streams by their index in the trace.

   Nouns. An *index* names a stream in records, and is unique over all devices. The *unknown* stream of a device is
   its first index. A *slot* of a followed stream has an index too.

   Why: a handle is 8 bytes and comes back for another stream. How: an index is defined by a record of its own before
   it is first used. With fixed segments the pool of a context is part of it. Limits: after SG_STREAMS_MAX (256)
   streams that are not followed, all others are the unknown one.

   For example, device 1 with 256 streams and 64 slots a device begins at index 320. 320 is its unknown stream, 321
   the first stream that it met, and 577 is slot 1. */
#ifndef SG_CORE_STATE_TRACE_STREAMS_H
#define SG_CORE_STATE_TRACE_STREAMS_H

#include "core/state/segments.h"

/* The index under which a stream stands in the trace; defines it there first if need be. */
uint32_t sg_device_stream_locked(struct sg_device *device, const struct sg_tag *tag) SG_REQUIRES(lock);

/* The number of a context's pool: 0 for the first context that was served, and for NULL. */
uint32_t sg_segments_pool_locked(struct sg_segments *fixed, CUcontext context) SG_REQUIRES(lock);

#endif
