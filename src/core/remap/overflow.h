/* Overflow: a block for which the device has too little memory lies in the host's in part.

   Nouns. The *far* part of a block is a page in the host's memory that is mapped behind the block's pages of the device
   (state/parts.h). Kernels reach it at its address, over the link. A block is *lacking* its size beyond idle pages
   and room.

   Why: whoever lacks 300 MiB at step 4,000 loses the run. Memory over a link costs bandwidth while that block lives, and
   nothing else. Nothing faults or moves by itself, as managed memory does.

   How: idle pages go back to the driver first. Pages of the device are made until there may be no more, and the far part is what
   is lacking then. A spare of the device (SG_OVERFLOW_SPARE) stays free, for blocks that are too small to lie elsewhere. A
   block that is freed gives its memory back at once where its work is complete, else before the device next grows. So the
   next block finds its place on the device first.

   Limits. Only the option `overflow` allows it, and only the last question of a caller asks for it (`overflow` of struct
   sg_tag). Blocks of less than SG_OVERFLOW_LEAST have no far part, nor have those of a tag, whose pauses go by pages. There is
   one region for each such block, so SG_REGIONS_MAX bounds them. The trace has each decision: SEGALLOC_TURN_OVERFLOW
   and SEGALLOC_TURN_ELSEWHERE.

   For example, a card of 24 GiB has 17.1 GiB in use, and 300 MiB idle in two pieces. 7 GiB are asked for, with
   overflow:host=4GiB. They lack 100 MiB, and the spare is 96 MiB. The idle pages go back, 6.8 GiB of the device's are mapped,
   and behind them 196 MiB of the host's. */
#ifndef SG_CORE_REMAP_OVERFLOW_H
#define SG_CORE_REMAP_OVERFLOW_H

#include "core/state/device.h"

/* Serves an allocation of `bytes` that the ladder could not serve. CUDA_SUCCESS: *ret is the block's address.
   CUDA_ERROR_OUT_OF_MEMORY: it may not, or there is too little; why is noted for the shortage. Takes `grow` and `lock`; the
   caller holds none. */
CUresult sg_overflow_serve(struct sg_device *device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret);

/* Gives the memory of such blocks back that were freed, and whose work is complete by now. */
void sg_overflow_give_back_growing(struct sg_device *device) SG_REQUIRES(grow);

#endif
