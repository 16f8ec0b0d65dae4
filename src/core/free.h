/* Frees, and the waits that stand for the driver's.

   Nouns. The *mode* of a free says when its memory may be used again. *Strict*: after a wait for the block's context,
   as cuMemFree waits. *Stream*: at once by the block's own stream, by others once they are ordered after it. *Event*:
   once all work of all contexts is complete, without a wait. *Complete*: at once, because the caller has waited.

   Why four: cuMemFree promises that earlier work is finished when it returns, and some programs rely on it. PyTorch
   does not, so a wait there would only cost time. The layer above chooses the mode by the caller (preload/serve), and
   the core obeys.

   How a mode falls back: a stream free of a block whose stream is not known acts as an event free. An event free
   waits where neither fences nor a helper thread can show that work is complete. A strict free among several contexts
   waits for the block's own. For the others the block is pending, as their work might wait for what the program does
   next (R31, R32).

   Limits. A fixed segment knows no pending memory, so a free there waits whatever the mode. docs/stream-order.md has
   the rules.

   For example, a block of stream 1 on which stream 2 has worked is freed by the order of streams at time 100. It is
   pending until stream 1 is ordered after stream 2's work of before 100, and belongs to stream 1 then. A strict free
   of that block makes it free for all when the wait returns. An event free joins an epoch of up to 32 frees, and
   takes effect when that is over. */
#ifndef SG_CORE_FREE_H
#define SG_CORE_FREE_H

#include "core/core_types.h"

/* Frees the block that starts at `address`, as cuMemFree does for memory of ours, by the mode `tag->sync`. An error
   of a wait is returned, and the block stays allocated. CUDA_ERROR_INVALID_VALUE: the address is in a range of ours,
   and no live block starts there. CUDA_ERROR_NOT_FOUND: it is not ours, and the driver should be asked. AUTO is no
   mode: it is refused with CUDA_ERROR_NOT_SUPPORTED, and ends a build with assertions. */
CUresult sg_core_free(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag);

/* The streams by which a free would go. `in_order`: it would act by the order of stream `own`, and wait for `others` too,
   which are slots as a set. Those of `after_alloc` are known to come after the block's allocation on `own`. Else it
   waits for all work. */
struct sg_free_users {
    bool in_order;
    sg_slot own;
    uint64_t others, after_alloc;
};

/* Writes to *ret by which streams sg_core_free() with this tag would go; nothing is changed. A caller that gives these
   streams work of its own on the block first has it covered by the free, once sg_core_slot_submitted() has noted that.
   False: no live block starts there. */
bool sg_core_free_users(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag, struct sg_free_users *ret);

/* Waits as a strict free of the block at `address` does, and frees nothing. `current` is the calling thread's
   context. *ret_all: nobody else can be using the block either. CUDA_ERROR_INVALID_VALUE: there is no such block. */
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
