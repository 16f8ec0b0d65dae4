#include "expandable_segment.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/meta.h"
#include "cached_block.h"

static uint64_t chunk_round_up(uint64_t bytes, uint64_t chunk)
{
    return (bytes + chunk - 1) / chunk * chunk;
}

/* True for a block that a request may take in: free, or addresses without memory. */
static bool block_is_usable(const struct sg_torch_block *block)
{
    return block && (block->state == TORCH_FREE || block->state == TORCH_UNMAPPED);
}

/* True if usable blocks from this one on hold `bytes` together. */
static bool block_has_room(const struct sg_torch_block *block, uint64_t bytes)
{
    uint64_t room = 0;
    for (; room < bytes && block_is_usable(block); block = block->next)
        room += block->size;
    return room >= bytes;
}

/* Reserves a segment: all of it one unmapped block. */
static int segment_reserve(struct sg_torch *torch, struct torch_pool *pool, struct sg_torch_block **ret)
{
    struct torch_segment *segment = sg_meta_noted(malloc(sizeof *segment));
    if (!segment || !torch_spare(torch)) {
        free(segment);
        return -ENOMEM;
    }
    segment->chunk = pool->small ? SG_TORCH_SMALL_SEGMENT : torch->conf.large_segment_size;
    segment->size = chunk_round_up(torch->total + torch->total / 8, segment->chunk);
    int error = torch->ops->reserve(torch->user, segment->size, &segment->address);
    if (error) {
        free(segment);
        return error;
    }
    torch->stats.reserves++;
    segment->link = &torch->segments;
    segment->next = torch->segments;
    if (segment->next)
        segment->next->link = &segment->next;
    torch->segments = segment;
    *ret = torch_block_new(torch, pool, segment, segment->address, segment->size);
    torch_unmapped_put(*ret);
    return 0;
}

/* The lowest address from which free and unmapped blocks together hold `bytes`: an unmapped block, or a free one with
   an unmapped one after it. A new segment where there is none. */
static int segment_find_room(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes, struct sg_torch_block **ret)
{
    for (struct sg_keynode *node = sg_keytree_first(&pool->unmapped); node; node = sg_keytree_next(node)) {
        struct sg_torch_block *block = torch_block_of(node);
        if (block_is_usable(block->prev))
            block = block->prev;
        if (block_has_room(block, bytes)) {
            *ret = block;
            return 0;
        }
    }
    return segment_reserve(torch, pool, ret);
}

/* Maps at least `bytes` from the start of an unmapped block, which becomes, merged with its free neighbours, a free
   one. */
static int segment_map(struct sg_torch *torch, struct sg_torch_block *block, uint64_t bytes)
{
    assert(block->state == TORCH_UNMAPPED && bytes <= block->size);
    struct torch_segment *segment = block->segment;
    uint64_t mapped = chunk_round_up(bytes, segment->chunk);
    if (!torch_spare(torch))
        return -ENOMEM;
    int error = torch->ops->map(torch->user, block->address, mapped, segment->chunk);
    if (error)
        return error;
    torch->stats.maps++;
    torch_grow(&torch->stats.reserved, mapped);

    torch_unmapped_take(block);
    if (mapped < block->size) {
        struct sg_torch_block *rest =
            torch_block_new(torch, block->pool, segment, block->address + mapped, block->size - mapped);
        torch_block_link(rest, block, block->next);
        torch_unmapped_put(rest);
        block->size = mapped;
    }
    block->state = TORCH_FREE;
    torch_merge(torch, block);
    torch_pool_put(torch, block);
    return 0;
}

int torch_expandable_alloc(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes, struct sg_torch_block **ret)
{
    struct sg_torch_block *block;
    int error = segment_find_room(torch, pool, bytes, &block);
    if (error)
        return error;
    if (block->state == TORCH_UNMAPPED)
        error = segment_map(torch, block, block->size < bytes ? block->size : bytes);
    while (!error && block->size < bytes) {
        struct sg_torch_block *more = block->next;
        uint64_t missing = bytes - block->size;
        error = segment_map(torch, more, more->size < missing ? more->size : missing);
        block = more; /* has taken the free block before it in */
    }
    if (error)
        return error; /* what was mapped stays, free */
    torch_pool_take(block);
    *ret = block;
    return 0;
}

/* Takes the chunks that lie wholly inside a free block away. */
static void segment_unmap(struct sg_torch *torch, struct sg_torch_block *block)
{
    struct torch_segment *segment = block->segment;
    /* From the first chunk that begins in the block to the end of the last that ends in it. */
    uint64_t first = segment->address + chunk_round_up(block->address - segment->address, segment->chunk);
    uint64_t end = block->address + block->size;
    end -= (end - segment->address) % segment->chunk;
    if (first >= end || !torch_spare(torch))
        return;
    torch->ops->unmap(torch->user, first, end - first, segment->chunk, block->pool->stream->id);
    torch->stats.unmaps++;
    torch->stats.reserved.current -= end - first;

    torch_pool_take(block);
    if (block->address < first) {
        struct sg_torch_block *before =
            torch_block_new(torch, block->pool, segment, block->address, first - block->address);
        torch_block_link(before, block->prev, block);
        torch_pool_put(torch, before);
    }
    if (end < block->address + block->size) {
        struct sg_torch_block *after =
            torch_block_new(torch, block->pool, segment, end, block->address + block->size - end);
        torch_block_link(after, block, block->next);
        torch_pool_put(torch, after);
    }
    block->address = first;
    block->size = end - first;
    block->state = TORCH_UNMAPPED;
    torch_merge(torch, block);
    torch_unmapped_put(block);
    if (block->prev || block->next)
        return;

    /* Nothing of the segment is left but addresses: they go back as well. */
    assert(block->size == segment->size);
    torch_unmapped_take(block);
    torch_block_drop(torch, block);
    torch->ops->unreserve(torch->user, segment->address, segment->size);
    torch->stats.unreserves++;
    *segment->link = segment->next;
    if (segment->next)
        segment->next->link = segment->link;
    free(segment);
}

void torch_expandable_release(struct sg_torch *torch, struct torch_pool *pool)
{
    /* The pieces of a block that stay free are smaller than it was, so they come before `next` in the order. */
    for (struct sg_keynode *node = sg_keytree_first(&pool->free), *next; node; node = next) {
        next = sg_keytree_next(node);
        segment_unmap(torch, torch_block_of(node));
    }
}
