#include "caching_allocator.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/meta.h"
#include "base/wrap.h"
#include "cached_block.h"
#include "expandable_segment.h"
#include "release_cached.h"
#include "request_stream.h"
#include "stream_uses.h"

/* A whole segment serves a request that it would have been made for, or that leaves no more than this part of it
   idle. */
enum { WHOLE_SLACK = 8 };

struct sg_torch *sg_torch_create(const struct sg_torch_conf *conf, uint64_t total_bytes, const struct sg_torch_ops *ops,
                                 void *user)
{
    struct sg_torch *torch = sg_meta_noted(calloc(1, sizeof *torch));
    if (!torch)
        return NULL;
    torch->conf = *conf;
    torch->ops = ops;
    torch->user = user;
    torch->total = total_bytes;
    torch->allowed = SG_TORCH_UNLIMITED;
    if (conf->memory_fraction < 1)
        torch->allowed = (uint64_t)(conf->memory_fraction * (double)total_bytes);
    return torch;
}

void sg_torch_destroy(struct sg_torch *torch)
{
    if (!torch)
        return;
    torch_events_free(torch);
    struct torch_stream *stream = torch->streams, *next;
    HASH_CLEAR(hh, torch->streams);
    for (; stream; stream = next) {
        next = stream->hh.next;
        free(stream);
    }
    for (struct torch_segment *segment = torch->segments, *after; segment; segment = after) {
        after = segment->next;
        free(segment);
    }
    torch_slabs_free(torch);
    free(torch);
}

/* True if garbage collection is on: PyTorch has it only together with a memory fraction. */
static bool torch_collects_garbage(const struct sg_torch *torch)
{
    return torch->allowed != SG_TORCH_UNLIMITED && torch->conf.garbage_collection_threshold > 0;
}

/* The size that a block could grow to without moving. */
static uint64_t block_reach(const struct sg_torch_block *block)
{
    const struct sg_torch_block *next = block->next;
    return block->size + (next && next->state == TORCH_UNMAPPED ? next->size : 0);
}

/* The bytes to ask of the driver for a request of `bytes`, already rounded. For 3 MiB that is a segment of 20 MiB, for 11 MiB
   one of 12. */
static uint64_t torch_segment_size(const struct sg_torch *torch, uint64_t bytes)
{
    bool whole = torch->conf.whole_segments;
    if (bytes <= SG_TORCH_SMALL)
        return whole ? bytes : SG_TORCH_SMALL_SEGMENT;
    if (bytes < SG_TORCH_MIN_LARGE && !whole)
        return torch->conf.large_segment_size;
    return (bytes + SG_TORCH_LARGE_STEP - 1) / SG_TORCH_LARGE_STEP * SG_TORCH_LARGE_STEP;
}

uint64_t sg_torch_takes(const struct sg_torch *torch, uint64_t bytes)
{
    return torch_segment_size(torch, bytes);
}

/* The size from which on a block is too large to be left whole. The sum is PyTorch's, which wraps too where the option is as large
   as it may be. */
SG_WRAPS static uint64_t torch_oversize_bound(const struct sg_torch *torch, uint64_t bytes)
{
    return bytes + torch->conf.max_non_split_rounding;
}

/* True if a block is less than its segment, from before segments were kept whole. */
static bool block_is_part(const struct sg_torch_block *block)
{
    return block->prev || block->next;
}

/* Best fit, by what a block can grow to where segments can. Both oversize rules hold for ranges inside expandable
   segments too, where they make reserved memory grow without bound (pytorch#123548); so it is in PyTorch. */
static struct sg_torch_block *pool_find_free(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes)
{
    if (torch_collects_garbage(torch))
        torch->searches[!pool->small]++;
    struct sg_keynode *node = sg_keytree_at_least(&pool->free, bytes, 0);
    if (!node)
        return NULL;
    /* Among blocks that are large enough the one with the least room to grow is taken, if it comes next in order: PyTorch
       keeps blocks that can grow for later. */
    if (torch->conf.expandable_segments) {
        for (struct sg_keynode *next = sg_keytree_next(node);
             next && block_reach(torch_block_of(next)) < block_reach(torch_block_of(node)); next = sg_keytree_next(node))
            node = next;
    }
    while (torch->conf.whole_segments && node && block_is_part(torch_block_of(node)))
        node = sg_keytree_next(node);
    if (!node)
        return NULL;
    struct sg_torch_block *block = torch_block_of(node);
    /* A small request takes no oversize block, and a large one none that is larger by max_non_split_rounding. */
    uint64_t oversize = torch->conf.max_split_size;
    if (bytes < oversize && block->size >= oversize)
        return NULL;
    if (bytes >= oversize && block->size >= torch_oversize_bound(torch, bytes))
        return NULL;
    if (torch->conf.whole_segments && block->size > torch_segment_size(torch, bytes) &&
        block->size - bytes > bytes / WHOLE_SLACK)
        return NULL;
    torch_pool_take(block);
    return block;
}

/* Gets new memory for a request: a segment, or a part of an expandable one. -ENOMEM: the fraction or the driver allows no
   more, or there is no host memory. */
static int segment_add(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes, struct sg_torch_block **ret)
{
    uint64_t size = torch_segment_size(torch, bytes), address;
    if (size > torch->allowed || torch->stats.reserved.current > torch->allowed - size)
        return -ENOMEM;
    if (torch->conf.expandable_segments)
        return torch_expandable_alloc(torch, pool, bytes, ret);
    /* Nothing read before this call is used after it: its owner may let others in while it lasts. */
    int error = torch->ops->segment_alloc(torch->user, size, &address);
    if (error)
        return error;
    if (!torch_spare(torch)) {
        torch->ops->segment_free(torch->user, address, size);
        return -ENOMEM;
    }
    torch->stats.segment_allocs++;
    torch_grow(&torch->stats.reserved, size);
    *ret = torch_block_new(torch, pool, NULL, address, size);
    return 0;
}

/* The order of recourse: new memory, after garbage collection; free oversize blocks given back; everything given
   back. The pool is not searched again after that, so what events have just released is not used (pytorch#189504). */
static int pool_find_new(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes, struct sg_torch_block **ret)
{
    if (torch_collects_garbage(torch))
        torch_collect(torch);
    int error = segment_add(torch, pool, bytes, ret);
    if (error == -ENOMEM && torch_release_oversize(torch, pool, bytes))
        error = segment_add(torch, pool, bytes, ret);
    if (error == -ENOMEM) {
        torch_release_all(torch);
        torch->stats.retries++;
        error = segment_add(torch, pool, bytes, ret);
    }
    if (error == -ENOMEM)
        torch->stats.ooms++;
    return error;
}

/* True if the rest of a block becomes a block of its own. In the small pool and in expandable segments 512 bytes are enough
   for that. In the large pool it has to be above 1 MiB, and a request of max_split_size and more splits nothing. */
static bool block_should_split(const struct sg_torch *torch, const struct sg_torch_block *block, uint64_t bytes)
{
    uint64_t rest = block->size - bytes;
    if (torch->conf.whole_segments)
        return false;
    if (block->pool->small || torch->conf.expandable_segments)
        return rest >= SG_TORCH_ALIGN;
    return bytes < torch->conf.max_split_size && rest > SG_TORCH_SMALL;
}

int sg_torch_alloc(struct sg_torch *torch, uint64_t bytes, uint64_t stream_id, struct sg_torch_block **ret)
{
    if (bytes == 0) {
        *ret = NULL;
        return 0;
    }
    struct torch_stream *stream = torch_stream_of(torch, stream_id);
    if (!stream || bytes >> 60) /* PyTorch refuses an exbibyte before anything else */
        return -ENOMEM;
    /* Blocks whose events are complete are free for this request already. */
    torch_events_poll(torch);
    uint64_t size = sg_torch_round(&torch->conf, bytes);
    struct torch_pool *pool = &stream->pools[size > SG_TORCH_SMALL];
    struct sg_torch_block *block = pool_find_free(torch, pool, size);
    if (!block) {
        int error = pool_find_new(torch, pool, size, &block);
        if (error)
            return error;
    }
    if (block_should_split(torch, block, size)) {
        if (!torch_spare(torch)) { /* no record for the rest: the block goes back whole */
            torch_pool_put(torch, block);
            return -ENOMEM;
        }
        struct sg_torch_block *rest =
            torch_block_new(torch, pool, block->segment, block->address + size, block->size - size);
        torch_block_link(rest, block, block->next);
        block->size = size;
        torch_pool_put(torch, rest);
    }
    block->state = TORCH_ALLOCATED;
    block->requested = bytes;
    torch->stats.allocs++;
    torch_grow(&torch->stats.allocated, block->size);
    torch_grow(&torch->stats.active, block->size);
    torch_grow(&torch->stats.requested, bytes);
    *ret = block;
    return 0;
}

bool sg_torch_keep_whole(struct sg_torch *torch)
{
    bool changes = !torch->conf.whole_segments;
    torch->conf.whole_segments = true;
    return changes;
}

void sg_torch_free(struct sg_torch *torch, struct sg_torch_block *block)
{
    if (!block)
        return;
    assert(block->state == TORCH_ALLOCATED);
    torch->stats.frees++;
    torch->stats.allocated.current -= block->size;
    torch->stats.requested.current -= block->requested;
    if (block->uses)
        torch_events_defer(torch, block);
    else
        torch_block_freed(torch, block);
}

int sg_torch_record_stream(struct sg_torch *torch, struct sg_torch_block *block, uint64_t stream)
{
    (void)torch; /* the events are recorded when the block is freed */
    if (!block || block->pool->stream->id == stream)
        return 0;
    struct torch_uses *uses = block->uses;
    for (uint32_t i = 0; uses && i < uses->count; i++) {
        if (uses->streams[i] == stream)
            return 0;
    }
    if (!uses || uses->count == uses->room) {
        uint32_t room = uses ? 2 * uses->room : 4;
        uses = sg_meta_noted(realloc(uses, sizeof *uses + room * sizeof uses->streams[0]));
        if (!uses)
            return -ENOMEM;
        if (!block->uses)
            uses->count = 0;
        uses->room = room;
        block->uses = uses;
    }
    uses->streams[uses->count++] = stream;
    return 0;
}

void sg_torch_empty_cache(struct sg_torch *torch)
{
    torch_release_all(torch);
}

void sg_torch_empty_stream(struct sg_torch *torch, uint64_t id)
{
    struct torch_stream *stream = torch_stream_of(torch, id);
    if (stream)
        torch_release_stream(torch, stream);
}

struct sg_torch *sg_torch_owner(const struct sg_torch_block *block)
{
    return block->pool->stream->torch;
}

uint64_t sg_torch_address(const struct sg_torch_block *block)
{
    return block ? block->address : 0;
}

uint64_t sg_torch_bytes(const struct sg_torch_block *block)
{
    return block ? block->size : 0;
}

const struct sg_torch_stats *sg_torch_stats(const struct sg_torch *torch)
{
    return &torch->stats;
}
