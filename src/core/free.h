/* Frees, and the waits that stand for the driver's.

   A free takes effect in one of four ways: after a wait as the driver's (strict), by the order of streams, after all work
   that there is (event), or at once (complete). docs/stream-order.md has the rules.

   For example, a block of stream 1 on which stream 2 has worked is freed by the order of streams at time 100. It is pending
   until stream 1 is ordered after stream 2's work of before 100, and belongs to stream 1 then. */
#ifndef SG_CORE_FREE_H
#define SG_CORE_FREE_H

#include "core/core_types.h"

/* cuMemFree for memory of ours. CUDA_ERROR_INVALID_VALUE for addresses inside our ranges that are not the start of a
   live block. CUDA_ERROR_NOT_FOUND: the address is not ours, the driver should be asked. `tag->sync` selects the
   mode. STRICT waits for the context that the block was allocated in; while other contexts may be using the block,
   it is pending. EVENT returns at once. An error of the wait is returned, and the block stays allocated. AUTO, which
   is no mode, is refused with CUDA_ERROR_NOT_SUPPORTED and ends a build with assertions. */
CUresult sg_core_free(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag);

/* Waits as a strict free of the block at `address` does. `current` is the calling thread's context. *ret_all:
   whether nobody else can be using the block either. */
CUresult sg_core_wait(struct sg_core *core, CUdeviceptr address, CUcontext current, bool *ret_all);

/* Waits for every context that there is. Returns the first error. */
CUresult sg_core_wait_for_all(struct sg_core *core);

/* A copy between devices touches the block that holds `address`, if there is one. A later free of it takes that into
   account, unless the block was allocated for a stream, whose caller records others (sg_core_record_stream()). For a
   block in a fixed segment, this call records the use by a stream of another context. */
void sg_core_used_cross_device(struct sg_core *core, CUdeviceptr address);

/* The live block at `address` is used on the stream of `slot` too. CUDA_ERROR_INVALID_VALUE: there is no such block.
   CUDA_ERROR_NOT_FOUND: the address isn't ours. */
CUresult sg_core_record_stream(struct sg_core *core, CUdeviceptr address, sg_slot slot);

#endif
