#include "cached_block.h"

#include <assert.h>
#include <stdlib.h>

#include "base/meta.h"

enum { SLAB_BLOCKS = 512 };

/* Records of blocks, 512 at a time: a block is made and dropped at nearly every event. */
struct torch_slab {
    struct torch_slab *next;
    struct sg_torch_block blocks[SLAB_BLOCKS];
};

bool torch_spare(struct sg_torch *torch)
{
    /* Two, because taking chunks out of the middle of a block leaves a piece on each side. */
    if (torch->spare && torch->spare->next)
        return true;
    struct torch_slab *slab = sg_meta_noted(calloc(1, sizeof *slab));
    if (!slab)
        return false;
    slab->next = torch->slabs;
    torch->slabs = slab;
    for (size_t i = SLAB_BLOCKS; i > 0; i--) {
        slab->blocks[i - 1].next = torch->spare;
        torch->spare = &slab->blocks[i - 1];
    }
    return true;
}

void torch_slabs_free(struct sg_torch *torch)
{
    for (struct torch_slab *slab = torch->slabs, *next; slab; slab = next) {
        next = slab->next;
        for (size_t i = 0; i < SLAB_BLOCKS; i++)
            free(slab->blocks[i].uses);
        free(slab);
    }
}

struct sg_torch_block *torch_block_new(struct sg_torch *torch, struct torch_pool *pool, struct torch_segment *segment,
                                       uint64_t address, uint64_t size)
{
    struct sg_torch_block *block = torch->spare;
    assert(block && block->state == TORCH_UNUSED && size > 0);
    torch->spare = block->next;
    block->prev = block->next = NULL;
    block->address = address;
    block->size = size;
    block->requested = 0;
    block->pool = pool;
    block->segment = segment;
    block->events = 0;
    return block;
}

void torch_block_drop(struct sg_torch *torch, struct sg_torch_block *block)
{
    assert(!block->uses);
    block->state = TORCH_UNUSED;
    block->next = torch->spare;
    torch->spare = block;
}

void torch_block_link(struct sg_torch_block *block, struct sg_torch_block *prev, struct sg_torch_block *next)
{
    block->prev = prev;
    block->next = next;
    if (prev)
        prev->next = block;
    if (next)
        next->prev = block;
}

void torch_pool_put(struct sg_torch *torch, struct sg_torch_block *block)
{
    block->state = TORCH_FREE;
    /* Its age counts from here, in searches of pools of its kind. */
    block->searched = torch->searches[!block->pool->small];
    sg_keytree_insert(&block->pool->free, &block->node, block->size, block->address);
}

void torch_pool_take(struct sg_torch_block *block)
{
    assert(block->state == TORCH_FREE);
    sg_keytree_erase(&block->pool->free, &block->node);
}

void torch_unmapped_put(struct sg_torch_block *block)
{
    block->state = TORCH_UNMAPPED;
    sg_keytree_insert(&block->pool->unmapped, &block->node, block->address, 0);
}

void torch_unmapped_take(struct sg_torch_block *block)
{
    assert(block->state == TORCH_UNMAPPED);
    sg_keytree_erase(&block->pool->unmapped, &block->node);
}

/* Takes a neighbour in the same state into a block. */
static void block_absorb(struct sg_torch *torch, struct sg_torch_block *block, struct sg_torch_block *other)
{
    if (!other || other->state != block->state)
        return;
    if (other->state == TORCH_FREE)
        torch_pool_take(other);
    else
        torch_unmapped_take(other);
    if (block->prev == other) {
        block->address = other->address;
        torch_block_link(block, other->prev, block->next);
    } else {
        torch_block_link(block, block->prev, other->next);
    }
    block->size += other->size;
    torch_block_drop(torch, other);
}

void torch_merge(struct sg_torch *torch, struct sg_torch_block *block)
{
    assert(block->state == TORCH_FREE || block->state == TORCH_UNMAPPED);
    block_absorb(torch, block, block->prev);
    block_absorb(torch, block, block->next);
}

void torch_block_freed(struct sg_torch *torch, struct sg_torch_block *block)
{
    torch->stats.active.current -= block->size;
    block->state = TORCH_FREE;
    torch_merge(torch, block);
    torch_pool_put(torch, block);
}

void torch_grow(struct sg_torch_level *level, uint64_t bytes)
{
    level->current += bytes;
    if (level->current > level->peak)
        level->peak = level->current;
}
