/* Expandable segments: address space of which parts have memory, in whole chunks. */
#ifndef SG_EXPANDABLE_SEGMENT_H
#define SG_EXPANDABLE_SEGMENT_H

#include "caching_state.h"

/* A free block of at least `bytes`, taken out of its pool; 0 or a negative errno. */
int torch_expandable_alloc(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes, struct sg_torch_block **ret);
/* Gives the memory of free chunks back, which is the rest of PyTorch's release_blocks(). */
void torch_expandable_release(struct sg_torch *torch, struct torch_pool *pool);

#endif
