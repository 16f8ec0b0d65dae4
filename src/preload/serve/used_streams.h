/* Streams that use a block beside the one that it was allocated for.

   Why. A free in stream order waits for the users that are known. A caller that hands a block to another stream says so by
   record_stream, and the free then waits for that stream's work too.

   For example, a block of 8 MiB is allocated on stream A of device 0 and recorded on B, which uses it too. A free makes it serve A again
   only after the work of both. Recorded on a stream of device 1, it is marked as used across devices. Where the driver
   served the block, one flag for the process says so, because the driver's own free would not wait for device 1. */
#ifndef SG_USED_STREAMS_H
#define SG_USED_STREAMS_H

#include "core/core.h"

/* A block is used on `stream` too (0: the legacy one): it is not given to others before that work is done. A block of the
   driver's is noted as by sg_memory_record_served(). CUDA_ERROR_NOT_SUPPORTED: the stream can't be followed and is another
   device's. Between sg_enter() and sg_leave(). */
CUresult sg_memory_record_stream(struct sg_core *core, CUdeviceptr address, CUstream stream);

/* Memory that the driver serves is used on `stream`. Asks the driver for its context. No lock. */
void sg_memory_record_served(CUdeviceptr address, CUstream stream);

/* Such memory is used on a stream of another context than its own: later frees by callers that record streams take that into
   account. No lock. */
void sg_memory_served_cross_device(void);

/* Before the driver frees memory of its own for a caller that records streams. Its free waits for the context whose
   memory it is, and not for work that the caller has queued on another device. Waits for all work of all devices,
   once there is such work. Not between sg_enter() and sg_leave(). */
void sg_memory_wait_cross_device(void);

#endif
