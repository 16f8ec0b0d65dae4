/* Blocks that are alive, in groups of those that have everything in common that is known of them: what holds memory is
   said by groups, largest first. Reports group a whole trace this way, the out-of-memory report the blocks of a device.

   A block belongs to one group from its allocation to its free; each operation takes constant time. Host memory is
   sg_meta_map()'s, so that a group can be made where the program's heap must not be used. Single-threaded. */
#ifndef SG_LIVE_GROUPS_H
#define SG_LIVE_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

/* What the blocks of a group have in common; 0 is what is not known. A further property is a further field. */
struct sg_live_key {
    uint64_t stream;     /* handle */
    uint32_t site;       /* number of the place in the program that asked */
    uint32_t phase;      /* number of the phase that it was in */
    uint32_t size_class; /* binary digits of the size (sg_live_class()) */
    uint32_t torch;      /* 1: PyTorch asked */
};
_Static_assert(sizeof(struct sg_live_key) == 24, "keys are compared as bytes: no padding");

enum { SG_LIVE_CLASSES = 65 };

static inline uint32_t sg_live_class(uint64_t bytes)
{
    return bytes ? 64 - (uint32_t)__builtin_clzll(bytes) : 0;
}

/* The smallest size of a class, bytes. */
static inline uint64_t sg_live_class_from(uint32_t size_class)
{
    return size_class ? UINT64_C(1) << (size_class - 1) : 0;
}

struct sg_live_sum {
    uint64_t blocks, bytes;
    uint64_t births; /* sum of the blocks' numbers, as allocations */
};

struct sg_live_group {
    struct sg_live_key key;
    struct sg_live_sum now, kept;
    uint32_t next_changed; /* from 1, of those that differ from what was kept */
    bool changed;
};

struct sg_live {
    struct sg_live_group *group; /* [0] takes in what finds no group of its own: its key is all zeros */
    uint32_t *slot;              /* open addressing: number of a group, 0: none */
    uint32_t groups, most;
    uint32_t changed;            /* first of the list, from 1 */
    uint64_t allocs, kept_allocs; /* so far; when it was kept */
};

/* Room for `most` groups, which is memory only where it is used. False: no host memory. */
bool sg_live_init(struct sg_live *live, uint32_t most);
void sg_live_fini(struct sg_live *live); /* of zeros too */

/* A block is alive from now on. Returns its group; its birth is `live->allocs` after the call. */
uint32_t sg_live_add(struct sg_live *live, const struct sg_live_key *key, uint64_t bytes);
void sg_live_remove(struct sg_live *live, uint32_t group, uint64_t bytes, uint64_t birth);

/* Keeps what is alive now in place of what was kept before: costs what has changed since. */
void sg_live_keep(struct sg_live *live);

/* A group in an answer. */
struct sg_live_row {
    struct sg_live_key key;
    uint64_t blocks, bytes;
    uint64_t age; /* mean, in allocations of the device */
};

/* Writes the `room` largest groups (of now, or as `kept`), largest first, and returns how many there are in all. With
   `mask`, fields of which are 0 or all ones, groups that differ only in fields of 0 become one row. */
uint32_t sg_live_rows(const struct sg_live *live, bool kept, const struct sg_live_key *mask, struct sg_live_row *ret,
    uint32_t room);

#endif
