#include "release_cached.h"

#include <assert.h>

#include "cached_block.h"
#include "expandable_segment.h"
#include "stream_uses.h"

/* True if a block is its whole segment, and that is one of fixed size. */
static bool block_is_segment(const struct sg_torch_block *block)
{
    return !block->prev && !block->next && !block->segment;
}

/* Gives a free segment of fixed size back. */
static void segment_release(struct sg_torch *torch, struct sg_torch_block *block)
{
    assert(block_is_segment(block));
    torch_pool_take(block);
    torch->ops->segment_free(torch->user, block->address, block->size);
    torch->stats.segment_frees++;
    torch->stats.reserved.current -= block->size;
    torch_block_drop(torch, block);
}

/* Searches of the large pools since a block was freed. */
static uint64_t block_age(const struct sg_torch *torch, const struct sg_torch_block *block)
{
    return torch->searches[1] - block->searched;
}

/* Releases the whole large blocks at least as old as `limit`. */
static uint64_t pools_collect_older(struct sg_torch *torch, double limit, uint64_t *ages, uint64_t *count)
{
    uint64_t released = 0;
    for (struct torch_stream *stream = torch->streams; stream; stream = stream->hh.next) {
        for (struct sg_keynode *node = sg_keytree_first(&stream->pools[1].free), *next; node; node = next) {
            struct sg_torch_block *block = torch_block_of(node);
            next = sg_keytree_next(node);
            if (!block_is_segment(block) || (double)block_age(torch, block) < limit)
                continue;
            released += block->size;
            *ages -= block_age(torch, block);
            --*count;
            segment_release(torch, block);
        }
    }
    return released;
}

void torch_collect(struct sg_torch *torch)
{
    uint64_t threshold = (uint64_t)(torch->conf.garbage_collection_threshold * (double)torch->allowed);
    if (torch->stats.reserved.current <= threshold)
        return;
    /* The mean age of all large blocks that are alone in their segment, expandable ones included. */
    uint64_t target = torch->stats.reserved.current - threshold, reclaimed = 0, ages = 0, count = 0;
    for (struct torch_stream *stream = torch->streams; stream; stream = stream->hh.next) {
        struct sg_keynode *node = sg_keytree_first(&stream->pools[1].free);
        for (; node; node = sg_keytree_next(node)) {
            struct sg_torch_block *block = torch_block_of(node);
            if (block->prev || block->next)
                continue;
            ages += block_age(torch, block);
            count++;
        }
    }
    for (uint64_t released = 1; released && reclaimed < target && count > 0; reclaimed += released)
        released = pools_collect_older(torch, (double)ages / (double)count, &ages, &count);
}

bool torch_release_oversize(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes)
{
    uint64_t oversize = torch->conf.max_split_size;
    if (oversize == SG_TORCH_UNLIMITED || torch->conf.expandable_segments)
        return false; /* blocks of expandable segments are never taken here */
    uint64_t wanted = bytes < oversize ? oversize : bytes;
    struct sg_keynode *node = sg_keytree_at_least(&pool->free, wanted, 0);
    if (node) {
        segment_release(torch, torch_block_of(node));
        return true;
    }
    uint64_t released = 0;
    node = sg_keytree_last(&pool->free);
    while (node && released < wanted && torch_block_of(node)->size >= oversize) {
        struct sg_torch_block *block = torch_block_of(node);
        node = sg_keytree_prev(node);
        released += block->size;
        segment_release(torch, block);
    }
    return released >= wanted;
}

/* Gives back what is free in a pool. */
static void pool_release(struct sg_torch *torch, struct torch_pool *pool)
{
    if (torch->conf.expandable_segments) {
        torch_expandable_release(torch, pool);
        return;
    }
    for (struct sg_keynode *node = sg_keytree_first(&pool->free), *next; node; node = next) {
        next = sg_keytree_next(node);
        if (block_is_segment(torch_block_of(node)))
            segment_release(torch, torch_block_of(node));
    }
}

void torch_release_stream(struct sg_torch *torch, struct torch_stream *stream)
{
    for (int kind = 1; kind >= 0; kind--)
        pool_release(torch, &stream->pools[kind]);
}

void torch_release_all(struct sg_torch *torch)
{
    torch->stats.cache_syncs++;
    torch_events_wait(torch);
    /* Large pools first, as PyTorch does: the order shows in the addresses that are used next. */
    for (int kind = 1; kind >= 0; kind--) {
        for (struct torch_stream *stream = torch->streams; stream; stream = stream->hh.next)
            pool_release(torch, &stream->pools[kind]);
    }
}
