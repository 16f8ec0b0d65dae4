/* An index over buckets, here called slots. Each holds a size. The first or last slot with at least a given size is found
   in as many steps as the range has hexadecimal digits.

   It is a complete 16-ary tree of maxima in plain arrays. The position in a level says which slots are below: no
   pointers, no rebalancing, one cache line a level. Keys must be dense and unique, as the buckets of addresses of a
   region of the core are. docs/experiments/index.md has the comparison. */
#ifndef SG_MAX_TREE_H
#define SG_MAX_TREE_H

#include <stdbool.h>
#include <stdint.h>

enum { SG_MAX_TREE_LEVELS = 9, SG_MAX_TREE_FANOUT = 16 };
#define SG_MAX_TREE_NONE UINT32_MAX

struct sg_max_tree {
    int32_t *level[SG_MAX_TREE_LEVELS]; /* level[0]: the slots; the last has at most 16 entries */
    uint32_t width[SG_MAX_TREE_LEVELS]; /* entries of a level, a multiple of 16 */
    uint32_t levels;
    uint32_t buckets;
    struct sg_max_tree_behind {
        uint32_t from, to; /* words of `groups` that may have a bit set */
        uint64_t groups[]; /* a bit for each 16 slots above which the maxima are to be brought up to date */
    } *behind;             /* NULL: they always are */
    void *memory;
    uint64_t bytes;
};

/* When the maxima follow what is set: at once, or where much is set and little looked for, by the next look. */
enum sg_max_tree_kind { SG_MAX_TREE_EAGER, SG_MAX_TREE_LATE };

/* All slots 0. Returns false when there is no host memory. */
bool sg_max_tree_init(struct sg_max_tree *index, uint32_t buckets, enum sg_max_tree_kind kind);
void sg_max_tree_fini(struct sg_max_tree *index);

/* `size` >= 0; 0 means that there is nothing in the slot. */
void sg_max_tree_set(struct sg_max_tree *index, uint32_t bucket, int32_t size);

/* Sets `from` to 0 and `to` to `size`, in one pass where they are close. */
void sg_max_tree_move(struct sg_max_tree *index, uint32_t from, uint32_t to, int32_t size);

static inline int32_t sg_max_tree_get(const struct sg_max_tree *index, uint32_t bucket)
{
    return index->level[0][bucket];
}

/* Lowest slot >= from, or highest slot < before, whose size is at least `size` (> 0); SG_MAX_TREE_NONE if there is
   none. */
uint32_t sg_max_tree_first(const struct sg_max_tree *index, uint32_t from, int32_t size);
uint32_t sg_max_tree_last(const struct sg_max_tree *index, uint32_t before, int32_t size);

/* The largest size of all. */
int32_t sg_max_tree_largest(const struct sg_max_tree *index);

#endif
