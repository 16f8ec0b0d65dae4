/* The shadow of freed memory: which bytes of which physical page are filled, and by which free.

   Nouns. A *place* is an offset in the physical memory that was ever seen here: each page gets places of its own, which
   are never used again. A *piece* is a row of filled places. A *freed block* is what is known of the block that a piece
   was part of.

   Why places and not addresses. A page moves to another address, or has two for a while, and takes its bytes along. The
   pieces stay where they are then: only the table from addresses to places changes. So what is read back at a new
   address is compared with what was filled at the old one.

   Limits. Addresses are followed in chunks of 2 MiB, the least granule that drivers have. Memory in other pieces has its
   address as its place: its pieces go when it is unmapped.

   For example, page P gets the places from 64 MiB on and stands at A. A block at A + 4 KiB is freed: a piece of 4 KiB at
   place 64 MiB + 4 KiB. P moves to B. A block at B + 4 KiB is handed out: the table says 64 MiB + 4 KiB, and the piece is
   found. P goes back to the driver, and its pieces with it. */
#ifndef SG_CHECK_SHADOW_H
#define SG_CHECK_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/idmap.h"
#include "base/keytree.h"
#include "check/pattern.h"
#include "driver/cuda_abi.h"

/* Where and when something was done. */
struct sg_check_note {
    uint32_t site, phase;
    CUstream stream;
    bool has_stream;
    uint64_t event; /* allocations and frees so far */
    uint64_t ns;    /* by the monotonic clock */
    long thread;    /* of the kernel */
};

/* Work that a block was used by, and that its next owner has to come after: marks.h. */
enum { SG_MARKS = 8 };
struct sg_mark {
    struct sg_lane *lane;
    uint32_t life, number;
    uint16_t stream;
};
struct sg_marks {
    unsigned count;
    struct sg_mark mark[SG_MARKS];
};

/* A freed block, while pieces of it are there or are being compared. `refs` counts these. */
struct sg_freed {
    struct sg_freed *next; /* of a list of unused ones */
    uint32_t refs;
    int device;
    CUdeviceptr base;
    uint64_t bytes; /* as the program asked for */
    bool canary;    /* while it is live: bytes behind it are written */
    bool unsettled; /* while it is live: our work on it may not be over */
    struct sg_fill fill;
    struct sg_marks marks;
    struct sg_check_note allocated, freed;
    const char *order; /* in which the free took effect, a constant text */
};

/* All tables of the shadow. `next_chunk` is where the places of the next page begin; it only grows, so a place names one
   page for good. */
struct sg_shadow {
    bool begun;
    struct sg_keytree pieces; /* by place */
    struct sg_idmap chunks;   /* address / CHUNK to place / CHUNK */
    struct sg_idmap pages;    /* place / CHUNK of a page's first byte to its struct */
    struct sg_idmap handles;  /* of the driver's, to the same */
    struct sg_idmap segments; /* address of the driver's own memory to its bytes */
    uint64_t next_chunk;
    void *unused_pieces;
    struct sg_freed *unused_freed;
    uint64_t held; /* structs that are in use */
};

/* All functions are for one thread at a time. Host memory that is missing makes a piece, or a page, unknown: then less
   is looked at, and nothing is wrong. */
bool sg_shadow_begin(struct sg_shadow *shadow);

/* Calls of the driver, noted after it has made them, and before it takes a page or its addresses away. created(): a page.
   mapped(): the page stands at that address too. segment(): memory of cuMemAlloc, whose address is its place. */
void sg_shadow_created(struct sg_shadow *shadow, CUmemGenericAllocationHandle handle, uint64_t bytes);
void sg_shadow_released(struct sg_shadow *shadow, CUmemGenericAllocationHandle handle);
void sg_shadow_mapped(struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes, uint64_t offset,
    CUmemGenericAllocationHandle handle);
void sg_shadow_unmapped(struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes);
void sg_shadow_segment(struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes);
void sg_shadow_segment_gone(struct sg_shadow *shadow, CUdeviceptr address);

/* A freed block with one reference, all zero besides; NULL: no host memory. unref() gives it back with the last one. */
struct sg_freed *sg_shadow_freed(struct sg_shadow *shadow);
void sg_shadow_unref(struct sg_shadow *shadow, struct sg_freed *freed);

/* The bytes at freed->base, as many as its fill has room, are filled from here on. */
void sg_shadow_put(struct sg_shadow *shadow, struct sg_freed *freed);

/* The freed block that the byte at `address` was part of last, with a reference of its own; NULL: it is not known. */
struct sg_freed *sg_shadow_at(struct sg_shadow *shadow, CUdeviceptr address);

/* A part of a freed block that is found again. */
struct sg_part {
    struct sg_freed *freed; /* with a reference of its own */
    uint64_t offset;        /* in the freed block */
    CUdeviceptr address;    /* now */
    uint64_t bytes;
};

/* Takes what is known of `bytes` bytes at `address` out of the shadow: they serve again. Writes up to `room` parts of up
   to `blocks` freed blocks, each part with a reference, and returns how many. *ret_bytes is how far it came: less than
   `bytes` where the next part found no room. The rest of a freed block on both sides stays in the shadow.

   Pages that follow each other in address and in the freed block are one part. A page in which nothing was filled is no part.
   So a block of 256 MiB is one part where its pages stand as they did, and nine at most where they are scattered: its
   windows and its tail. A freed block that needs marks has a part at least.

   For example, blocks X of 4 KiB and Y of 8 KiB were freed, one behind the other at A. A block of 6 KiB at A takes two
   parts: all of X, and bytes 0 to 2,047 of Y. The next block at A + 6 KiB finds Y from byte 2,048 on. */
size_t sg_shadow_take(struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes, struct sg_part *ret, size_t room,
    size_t blocks, uint64_t *ret_bytes);

/* Forgets what is known of these bytes. */
void sg_shadow_forget(struct sg_shadow *shadow, CUdeviceptr address, uint64_t bytes);

/* True if the byte in front of `end` is the last one of a freed block; *ret_place is the place of its stamps. */
bool sg_shadow_ends_at(const struct sg_shadow *shadow, CUdeviceptr end, unsigned *ret_place);

#endif
