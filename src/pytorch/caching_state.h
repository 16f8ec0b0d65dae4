/* The state of PyTorch's caching allocator: blocks of segments, pools of free ones, and streams with two pools each. It is
   for the files of this layer alone.

   A block is in one of four states while it exists. No piece of memory is ever lost: the blocks of a segment cover it
   without gap, in a list in the order of addresses.

     free         in its pool, by size and address
     allocated    the program's
     deferred     freed, while a stream that it was recorded on may still use it; in no pool
     unmapped     addresses of an expandable segment without memory; in its pool's other tree, by address

   For example, 6 MiB of a segment of 20 MiB are allocated. The segment is two blocks in the order of addresses then, and the
   one of 14 MiB is in the large pool of its stream. The state is for one caller at a time, and has no lock. */
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

/* The free blocks of one stream and one kind, and the addresses without memory in its expandable segments. */
struct torch_pool {
    struct sg_keytree free, unmapped;
    struct torch_stream *stream;
    bool small;
};

/* An event that a deferred block waits for. */
struct torch_event {
    struct torch_event *next;
    struct sg_torch_block *block;
    uint64_t event;
};

/* A stream that has asked for memory. */
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

/* The streams that a block was recorded on besides its own. */
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

/* The block that a node of a tree is in. */
static inline struct sg_torch_block *torch_block_of(struct sg_keynode *node)
{
    return (struct sg_torch_block *)(void *)node; /* its first member */
}

#endif
