/* A tree of maxima over numbered *buckets*, each of which holds a size. It finds the first bucket from
   a place on that has at least a given size, and the last such bucket before a place.

   Why: an allocation looks for the lowest free range that is large enough, among up to millions of
   buckets. A balanced tree answers that too, at a cache miss for each of some 20 levels. Here a level is one cache line of
   16 sizes, and a million buckets have 5 levels. docs/experiments/index.md has the comparison.

   How: level 0 has the sizes. An entry of level n + 1 is the largest of 16 entries of level n. The position of an entry
   says which buckets are below it, so there are no pointers and nothing is rebalanced. A search climbs until some entry
   at or after its place is large enough, and then goes down to the first such bucket. Keys must be dense and unique, as
   the buckets of addresses of a region of the core are.

   Example, 300 buckets: level 0 has 300 entries, level 1 has 19 and level 2 has 2. Bucket 5 holds 8, bucket 40 holds 600,
   and bucket 290 holds 600.
     level 1    [0] = 8      buckets 0 to 15       [2] = 600   buckets 32 to 47     [18] = 600   buckets 288 to 299
     level 2    [0] = 600    entries 0 to 15 of level 1        [1] = 600   entries 16 to 18
     first from 0, size 600     root: entry 0 fits; below it entry 2; below that bucket 40
     first from 41, size 600    nothing in 41 to 47; nothing in entries 3 to 15; root: entry 1; then 18; then bucket 290
     last before 40, size 1     bucket 5, by way of level 1, since no bucket of 32 to 39 holds anything

   Limits: sizes are 0 to 2^31 - 1, in units of the caller's. There are 9 levels at most. One thread at a time. */
#ifndef SG_MAX_TREE_H
#define SG_MAX_TREE_H

#include <stdbool.h>
#include <stdint.h>

enum { SG_MAX_TREE_LEVELS = 9, SG_MAX_TREE_FANOUT = 16 };
#define SG_MAX_TREE_NONE UINT32_MAX /* no such bucket */

struct sg_max_tree {
    int32_t *level[SG_MAX_TREE_LEVELS]; /* level[0]: the sizes by bucket; the last has at most 16 entries */
    uint32_t width[SG_MAX_TREE_LEVELS]; /* entries of a level, a multiple of 16 */
    uint32_t levels;
    uint32_t buckets;
    struct sg_max_tree_behind {
        uint32_t from, to; /* words of `groups` that may have a bit set */
        uint64_t groups[]; /* a bit for each 16 buckets above which the maxima are to be brought up to date */
    } *behind;             /* NULL: they always are */
    void *memory;          /* all arrays stand in it, one behind the other */
    uint64_t bytes;        /* of that */
};

/* The moment at which the maxima follow a change. EAGER: at once. LATE: by the next search. That suits a tree in
   which much is set between two searches, since a bucket that is set ten times then costs one climb. */
enum sg_max_tree_kind { SG_MAX_TREE_EAGER, SG_MAX_TREE_LATE };

/* Makes a tree of `buckets` sizes of 0, of sg_meta_map() memory that costs nothing until it is used: 4.1 MiB for a
   million buckets. False: no host memory. sg_max_tree_fini() gives it back. */
bool sg_max_tree_init(struct sg_max_tree *index, uint32_t buckets, enum sg_max_tree_kind kind);
void sg_max_tree_fini(struct sg_max_tree *index);

/* Sets the size of a bucket, 0 or more; 0 means that the bucket is empty. */
void sg_max_tree_set(struct sg_max_tree *index, uint32_t bucket, int32_t size);

/* Sets the size of `from` to 0 and that of `to` to `size`: a free range that is cut or joined begins elsewhere. Where both
   are among the same 16 buckets that is one pass instead of two. */
void sg_max_tree_move(struct sg_max_tree *index, uint32_t from, uint32_t to, int32_t size);

/* The size of a bucket. */
static inline int32_t sg_max_tree_get(const struct sg_max_tree *index, uint32_t bucket)
{
    return index->level[0][bucket];
}

/* The lowest bucket >= from, or the highest bucket < before, whose size is at least `size` (> 0). SG_MAX_TREE_NONE: there
   is none. */
uint32_t sg_max_tree_first(const struct sg_max_tree *index, uint32_t from, int32_t size);
uint32_t sg_max_tree_last(const struct sg_max_tree *index, uint32_t before, int32_t size);

/* The largest size of all, from the root alone. */
int32_t sg_max_tree_largest(const struct sg_max_tree *index);

#endif
