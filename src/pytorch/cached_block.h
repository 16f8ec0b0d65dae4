/* Blocks and pools: records of blocks, their lists in the order of addresses, and the trees of free ones. A block that becomes
   free joins its free neighbours.

   For example, blocks of 2, 4 and 6 MiB lie one after another, the outer two free. When the middle one is freed, one block of
   12 MiB is in the pool, and two records are spare. */
#ifndef SG_CACHED_BLOCK_H
#define SG_CACHED_BLOCK_H

#include "caching_state.h"

/* Two records are to be had: false when there is no host memory. */
bool torch_spare(struct sg_torch *torch);
/* Makes a block of `size` bytes, which is in no list and no tree yet. torch_spare() has been true before. */
struct sg_torch_block *torch_block_new(struct sg_torch *torch, struct torch_pool *pool, struct torch_segment *segment,
    uint64_t address, uint64_t size);
/* Makes the record of a block a spare one. The block is in no tree, and no stream uses it. */
void torch_block_drop(struct sg_torch *torch, struct sg_torch_block *block);
/* Puts a block between two neighbours of its segment, either of which may be NULL. */
void torch_block_link(struct sg_torch_block *block, struct sg_torch_block *prev, struct sg_torch_block *next);
/* Marks a block as free and puts it into its pool, with the pool's searches as its age; takes it out again. */
void torch_pool_put(struct sg_torch *torch, struct sg_torch_block *block);
void torch_pool_take(struct sg_torch_block *block);
/* Marks a block as addresses without memory and files it; takes it out again. */
void torch_unmapped_put(struct sg_torch_block *block);
void torch_unmapped_take(struct sg_torch_block *block);
/* Joins a free or unmapped block, which is in no tree, with neighbours in the same state. */
void torch_merge(struct sg_torch *torch, struct sg_torch_block *block);
/* Nobody can use the block any more: it joins its neighbours, and goes into its pool. */
void torch_block_freed(struct sg_torch *torch, struct sg_torch_block *block);
/* Gives the host memory of all records back. */
void torch_slabs_free(struct sg_torch *torch);
/* Adds to a level; its peak follows. */
void torch_grow(struct sg_torch_level *level, uint64_t bytes);

#endif
