/* Expandable segments: address space of which parts have memory, in whole chunks.

   A *chunk* is the piece in which memory comes and goes. It has large_segment_size_mb in the large pool, 20 MiB by default,
   and 2 MiB in the small one. A segment reserves 9/8 of the device's memory in addresses, so one for each pool is nearly always
   enough. It grows at its end, or fills gaps that were given back, the lowest first.

   Example, a card of 24 GiB, so 27 GiB of addresses, chunks of 20 MiB. Offsets are in MiB:
     alloc 30 MiB      two chunks are mapped, 0 to 40; the block is 0 to 30, and 30 to 40 is free     reserved 40 MiB
     alloc 15 MiB      the free 10 MiB are at the end, so one more chunk is enough: block 30 to 45    reserved 60 MiB
     free 30 MiB
     empty_cache       chunk 0 to 20 is free as a whole and goes; 20 to 40 is in use from 30 on       reserved 40 MiB
     free 15 MiB
     empty_cache       all chunks go, and the addresses with them                                     reserved 0

   Limits: memory of one stream serves no other; a chunk goes only where nothing of it is in use. */
#ifndef SG_EXPANDABLE_SEGMENT_H
#define SG_EXPANDABLE_SEGMENT_H

#include "caching_state.h"

/* Gets a free block of at least `bytes`, grown if need be, and taken out of its pool. 0 or a negative errno; then memory
   that was mapped on the way stays, free. */
int torch_expandable_alloc(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes, struct sg_torch_block **ret);
/* Gives the memory of free chunks back, which is the rest of PyTorch's release_blocks(). */
void torch_expandable_release(struct sg_torch *torch, struct torch_pool *pool);

#endif
