/* Live blocks, grouped by stream, site, phase, size class and whether PyTorch asked for them.

   A *group* is all live blocks with one key. A *row* is a group in an answer. A report of what holds memory lists rows,
   largest first: "1.20 GiB in 48 blocks, train.py:57". Reports group a whole trace this way, and the out-of-memory report
   groups the blocks of one device.

   A block belongs to one group from its allocation to its free, and each of the two costs constant time. The *kept*
   state is a copy of all sums at an earlier moment, such as the peak so far. Only groups that have changed since are
   copied, so that a peak which rises at each step costs a step each time, not all groups.

   Example. Site 7 allocates 300 KiB twice and frees the first; site 8 allocates 8 MiB. Sizes of 256 KiB up to, but not
   including, 512 KiB are class 19; those from 8 MiB are class 24.
     add (site 7, class 19), 307200    group 1, birth 1    group 1: 1 block,  307200 bytes, births 1
     add (site 7, class 19), 307200    group 1, birth 2    group 1: 2 blocks, 614400 bytes, births 3
     add (site 8, class 24), 8388608   group 2, birth 3    group 2: 1 block, 8388608 bytes, births 3
     remove group 1, 307200, birth 1                       group 1: 1 block,  307200 bytes, births 2
     rows: site 8, 8388608 bytes, age 0; site 7, 307200 bytes, age 1: one allocation has come since

   Limits: there is room for `most` groups. Later keys go to group 0, whose key is all zeros, so sums stay right.
   Host memory is sg_meta_map()'s, because the out-of-memory report may not use the program's heap. One thread at a
   time. */
#ifndef SG_LIVE_GROUPS_H
#define SG_LIVE_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

/* The properties that the blocks of a group share; 0 stands for an unknown one. A further property is a further field. */
struct sg_live_key {
    uint64_t stream;     /* handle */
    uint32_t site;       /* number of the place in the program that asked */
    uint32_t phase;      /* number of the phase that it was in */
    uint32_t size_class; /* binary digits of the size (sg_live_class()) */
    uint32_t torch;      /* 1: PyTorch asked */
};
_Static_assert(sizeof(struct sg_live_key) == 24, "keys are compared as bytes: no padding");

enum { SG_LIVE_CLASSES = 65 };

/* The size class of `bytes`: the number of binary digits, 0 for 0 bytes. 307200 has 19 of them. */
static inline uint32_t sg_live_class(uint64_t bytes)
{
    return bytes ? 64 - (uint32_t)__builtin_clzll(bytes) : 0;
}

/* The smallest size of a class, bytes: class 19 begins at 262144. */
static inline uint64_t sg_live_class_from(uint32_t size_class)
{
    return size_class ? UINT64_C(1) << (size_class - 1) : 0;
}

/* Sums over the live blocks of a group. The mean age of its blocks is allocations so far - births / blocks. */
struct sg_live_sum {
    uint64_t blocks, bytes;
    uint64_t births; /* each block has the number of its allocation, from 1: the sum of those numbers */
};

struct sg_live_group {
    struct sg_live_key key;
    struct sg_live_sum now, kept;
    uint32_t next_changed; /* the next group of the list of those that differ from what was kept, plus 1; 0: the last */
    bool changed;
};

/* All groups of one device or of one trace. All zero: not made. */
struct sg_live {
    struct sg_live_group *group; /* [0] takes in what finds no group of its own: its key is all zeros */
    uint32_t *slot;              /* open addressing: number of a group, 0: none */
    uint32_t groups, most;
    uint32_t changed;            /* first of the list, from 1 */
    uint64_t allocs, kept_allocs; /* allocations so far, and at the moment that was kept */
};

/* Makes room for `most` groups, group 0 included. It is reserved at once and becomes memory where it is used. False: no
   host memory, and sg_live_fini() need not be called. */
bool sg_live_init(struct sg_live *live, uint32_t most);
/* Gives all memory back. Takes a structure of zeros too. */
void sg_live_fini(struct sg_live *live);

/* Counts a block of `bytes`, alive from now on. Returns its group. Its birth is `live->allocs` after the call; the caller
   keeps both with the block. sg_live_remove() takes the three back when the block is freed. */
uint32_t sg_live_add(struct sg_live *live, const struct sg_live_key *key, uint64_t bytes);
void sg_live_remove(struct sg_live *live, uint32_t group, uint64_t bytes, uint64_t birth);

/* Makes the present sums the kept ones. The cost is that of the groups that have changed since the last time. */
void sg_live_keep(struct sg_live *live);

/* One line of an answer: a group, or several that the mask has made equal. */
struct sg_live_row {
    struct sg_live_key key;
    uint64_t blocks, bytes;
    uint64_t age; /* mean, in allocations of the device */
};

/* Writes the `room` largest rows by bytes, of equal ones that with more blocks first, and returns how many rows there are
   in all. `kept` selects the kept state instead of the present one.

   `mask` has 0 or all ones in each field; NULL is all ones everywhere. Groups that differ only in fields of 0 become one
   row: with all ones in `site` alone, a row is a site. Takes host memory for the merged groups while it runs; without it
   there are 0 rows. */
uint32_t sg_live_rows(const struct sg_live *live, bool kept, const struct sg_live_key *mask, struct sg_live_row *ret,
    uint32_t room);

#endif
