/* What the files of the PyTorch policy share; nobody else includes it. */
#ifndef SG_CACHING_STATE_H
#define SG_CACHING_STATE_H

#include "base/keytree.h"
#include "pointer_hash.h"
#include "caching_allocator.h"
#include "caching_constants.h"

enum torch_state {
    TORCH_UNUSED,    /* a spare record */
    TORCH_FREE,      /* in its pool's `free`, by size and address */
    TORCH_ALLOCATED,
    TORCH_DEFERRED,  /* freed, some stream may still use it */
    TORCH_UNMAPPED   /* address space of an expandable segment, in its pool's `unmapped`, by address; whole chunks */
};

/* A piece of a segment. The pieces of one segment are a list in the order of addresses. */
struct sg_torch_block {
    struct sg_keynode node;
    struct sg_torch_block *prev, *next; /* `next` also links spare records */
    uint64_t address, size, requested;
    struct torch_pool *pool;
    struct torch_segment *segment;      /* NULL for a segment of fixed size */
    struct torch_uses *uses;            /* streams recorded, NULL for none */
    uint64_t searched;                  /* the pool's searches when it became free: its age */
    uint32_t events;                    /* not yet complete, when deferred */
    enum torch_state state;
};

struct torch_pool {
    struct sg_keytree free, unmapped;
    struct torch_stream *stream;
    bool small;
};

struct torch_event {
    struct torch_event *next;
    struct sg_torch_block *block;
    uint64_t event;
};

struct torch_stream {
    uint64_t id;
    struct sg_torch *torch;
    struct torch_pool pools[2];             /* small, large */
    struct torch_event *events, **events_end; /* oldest first */
    UT_hash_handle hh;
};

/* An expandable segment. */
struct torch_segment {
    struct torch_segment *next, **link;
    uint64_t address, size, chunk;
};

struct torch_uses {
    uint32_t count, room;
    uint64_t streams[];
};

struct torch_slab;

struct sg_torch {
    struct sg_torch_conf conf;
    const struct sg_torch_ops *ops;
    void *user;
    uint64_t total, allowed;      /* bytes; `allowed` is SG_TORCH_UNLIMITED without a memory fraction */
    struct torch_stream *streams; /* hash, and a list in the order of first use */
    struct torch_stream *latest;  /* the stream that asked last */
    uint64_t searches[2];         /* of the small and of the large pools, when garbage collection is on */
    uint64_t outstanding;         /* events in all queues */
    struct torch_event *spare_events;
    struct sg_torch_block *spare;
    struct torch_slab *slabs;
    struct torch_segment *segments;
    struct sg_torch_stats stats;
};

static inline struct sg_torch_block *torch_block_of(struct sg_keynode *node)
{
    return (struct sg_torch_block *)(void *)node; /* its first member */
}

/* cached_block.c */
bool torch_spare(struct sg_torch *torch);  /* two records are to be had: false when there is no host memory */
struct sg_torch_block *torch_block_new(struct sg_torch *torch, struct torch_pool *pool, struct torch_segment *segment,
                                       uint64_t address, uint64_t size);
void torch_block_drop(struct sg_torch *torch, struct sg_torch_block *block);
void torch_block_link(struct sg_torch_block *block, struct sg_torch_block *prev, struct sg_torch_block *next);
void torch_pool_put(struct sg_torch *torch, struct sg_torch_block *block);   /* marks it free and files it */
void torch_pool_take(struct sg_torch_block *block);
void torch_unmapped_put(struct sg_torch_block *block);
void torch_unmapped_take(struct sg_torch_block *block);
void torch_merge(struct sg_torch *torch, struct sg_torch_block *block); /* with like neighbours; it is in no tree */
void torch_slabs_free(struct sg_torch *torch);
void torch_grow(struct sg_torch_level *level, uint64_t bytes);

/* expandable_segment.c: a free block of at least `bytes`, taken out of its pool, and the rest of release_blocks(). */
int torch_expandable_alloc(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes,
                           struct sg_torch_block **ret);
void torch_expandable_release(struct sg_torch *torch, struct torch_pool *pool);

/* release_cached.c */
void torch_collect(struct sg_torch *torch);                                        /* garbage collection */
bool torch_release_oversize(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes);
void torch_release_all(struct sg_torch *torch);
void torch_release_stream(struct sg_torch *torch, struct torch_stream *stream);

/* stream_uses.c */
void torch_events_defer(struct sg_torch *torch, struct sg_torch_block *block);
void torch_events_poll(struct sg_torch *torch);
void torch_events_wait(struct sg_torch *torch);
void torch_events_free(struct sg_torch *torch);

/* caching_allocator.c: NULL when there is no host memory. */
struct torch_stream *torch_stream_of(struct sg_torch *torch, uint64_t id);
void torch_block_freed(struct sg_torch *torch, struct sg_torch_block *block); /* nobody can use it any more */

#endif
