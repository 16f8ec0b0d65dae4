/* Blocks and pools: records of blocks, their lists in the order of addresses, and the trees of free ones. A block that becomes
   free joins its free neighbours.

   For example, blocks of 2, 4 and 6 MiB lie one after another, the outer two free. When the middle one is freed, one block of
   12 MiB is in the pool, and two records are spare. */
#ifndef SG_CACHED_BLOCK_H
#define SG_CACHED_BLOCK_H

#include "caching_state.h"

/* Two records are to be had: false when there is no host memory. */
bool torch_spare(struct sg_torch *torch);
struct sg_torch_block *torch_block_new(struct sg_torch *torch, struct torch_pool *pool, struct torch_segment *segment,
    uint64_t address, uint64_t size);
void torch_block_drop(struct sg_torch *torch, struct sg_torch_block *block);
void torch_block_link(struct sg_torch_block *block, struct sg_torch_block *prev, struct sg_torch_block *next);
void torch_pool_put(struct sg_torch *torch, struct sg_torch_block *block); /* marks it free and files it */
void torch_pool_take(struct sg_torch_block *block);
void torch_unmapped_put(struct sg_torch_block *block);
void torch_unmapped_take(struct sg_torch_block *block);
void torch_merge(struct sg_torch *torch, struct sg_torch_block *block); /* with like neighbours; it is in no tree */
/* Nobody can use the block any more: it joins its neighbours, and goes into its pool. */
void torch_block_freed(struct sg_torch *torch, struct sg_torch_block *block);
void torch_slabs_free(struct sg_torch *torch);
void torch_grow(struct sg_torch_level *level, uint64_t bytes);

#endif
