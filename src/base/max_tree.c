#include "max_tree.h"

#include <assert.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "meta.h"

enum { BITS = 4, MASK = SG_MAX_TREE_FANOUT - 1 };

/* Bit i is set where group[i] >= size. */
static inline uint32_t group_fitting(const int32_t *group, int32_t size)
{
#if defined(__SSE2__)
    /* SSE2 compares for greater only, hence size - 1. Four compares of four numbers each, a bit for each result. */
    __m128i limit = _mm_set1_epi32(size - 1);
    uint32_t bits = 0;
    for (int quarter = 0; quarter < 4; quarter++) {
        __m128i four = _mm_load_si128((const __m128i *)(const void *)(group + 4 * quarter));
        bits |= (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(four, limit))) << (4 * quarter);
    }
    return bits;
#else
    uint32_t bits = 0;
    for (int i = 0; i < SG_MAX_TREE_FANOUT; i++)
        bits |= (uint32_t)(group[i] >= size) << i;
    return bits;
#endif
}

#if defined(__SSE2__)
/* The larger of each two numbers. SSE2 has that for 16 bits only; _mm_max_epi32 came with SSE4.1. */
static inline __m128i larger_of(__m128i a, __m128i b)
{
    __m128i less = _mm_cmpgt_epi32(b, a);
    return _mm_or_si128(_mm_and_si128(less, b), _mm_andnot_si128(less, a));
}
#endif

/* The largest of a group as if group[lane] were `value` and group[gone] were 0 (`gone` may be `lane`: no other). The
   group is read before the new value is stored. A vector read over a word just written stalls until that store has
   left the processor's buffer, which cost more than all else here. */
static inline int32_t group_largest_with(const int32_t *group, uint32_t lane, int32_t value, uint32_t gone)
{
#if defined(__SSE2__)
    const __m128i *four = (const __m128i *)(const void *)group;
    __m128i here = _mm_set1_epi32((int)lane), there = _mm_set1_epi32((int)gone), number = _mm_setr_epi32(0, 1, 2, 3);
    __m128i largest = _mm_set1_epi32(value);
    for (int quarter = 0; quarter < 4; quarter++) {
        __m128i skip = _mm_or_si128(_mm_cmpeq_epi32(number, here), _mm_cmpeq_epi32(number, there));
        largest = larger_of(largest, _mm_andnot_si128(skip, _mm_load_si128(four + quarter)));
        number = _mm_add_epi32(number, _mm_set1_epi32(4));
    }
    largest = larger_of(largest, _mm_shuffle_epi32(largest, 0x4e));
    largest = larger_of(largest, _mm_shuffle_epi32(largest, 0xb1));
    return _mm_cvtsi128_si32(largest);
#else
    int32_t largest = value;
    for (uint32_t i = 0; i < SG_MAX_TREE_FANOUT; i++)
        if (i != lane && i != gone && group[i] > largest)
            largest = group[i];
    return largest;
#endif
}

/* Whole groups of 16, so that each group is one aligned cache line. */
static uint64_t entries_rounded(uint64_t entries)
{
    return (entries + MASK) & ~(uint64_t)MASK;
}

/* Level widths of a million buckets: 1000000, 62500, 3907, 245, 16. Each is the one before over 16, rounded up. */
bool sg_max_tree_init(struct sg_max_tree *index, uint32_t buckets, enum sg_max_tree_kind kind)
{
    uint64_t entries = 0;
    uint32_t levels = 0;
    for (uint64_t width = buckets;; width = (width + MASK) >> BITS) {
        entries += entries_rounded(width);
        levels++;
        if (width <= SG_MAX_TREE_FANOUT)
            break;
    }
    assert(levels <= SG_MAX_TREE_LEVELS);
    /* The bits of a late tree stand behind the levels, in the same mapping. */
    uint64_t words = kind == SG_MAX_TREE_LATE ? (entries_rounded(buckets) / SG_MAX_TREE_FANOUT + 63) / 64 : 0;
    uint64_t bytes = entries * sizeof(int32_t),
             bytes_behind = words ? sizeof(struct sg_max_tree_behind) + words * sizeof(uint64_t) : 0;
    int32_t *memory = sg_meta_map(bytes + bytes_behind);
    if (!memory)
        return false;
    *index = (struct sg_max_tree){.levels = levels, .buckets = buckets, .memory = memory,
        .bytes = bytes + bytes_behind};
    if (words) {
        index->behind = (void *)(memory + entries); /* whole groups of 16 come before it */
        index->behind->from = UINT32_MAX;
    }
    uint64_t width = buckets;
    for (uint32_t level = 0; level < levels; level++, width = (width + MASK) >> BITS) {
        index->level[level] = memory;
        index->width[level] = (uint32_t)entries_rounded(width);
        memory += entries_rounded(width);
    }
    return true;
}

void sg_max_tree_fini(struct sg_max_tree *index)
{
    sg_meta_unmap(index->memory, index->bytes);
    *index = (struct sg_max_tree){0};
}

/* Sets one entry of a level and brings the levels above up to date. It stops at the first maximum that stays as it is:
   most changes are of a bucket that is not the largest of its 16. */
static inline void max_tree_set_entry(const struct sg_max_tree *index, uint32_t level, uint32_t bucket, int32_t size)
{
    for (;; level++) {
        int32_t *entry = &index->level[level][bucket];
        if (level + 1 == index->levels) {
            *entry = size;
            return;
        }
        uint32_t parent = bucket >> BITS;
        /* A larger size is the new maximum. A smaller one matters only where it replaces the maximum. */
        int32_t known = index->level[level + 1][parent], now = known;
        if (size > known)
            now = size;
        else if (*entry == known && size < known)
            now = group_largest_with(entry - (bucket & MASK), bucket & MASK, size, bucket & MASK);
        *entry = size;
        if (now == known)
            return;
        size = now;
        bucket = parent;
    }
}

/* Sets a bucket of a tree whose maxima follow later: notes its group of 16. */
static inline void max_tree_set_late(struct sg_max_tree *index, uint32_t bucket, int32_t size)
{
    struct sg_max_tree_behind *behind = index->behind;
    uint32_t group = bucket >> BITS, word = group / 64;
    index->level[0][bucket] = size;
    behind->groups[word] |= UINT64_C(1) << group % 64;
    behind->from = word < behind->from ? word : behind->from;
    behind->to = word > behind->to ? word : behind->to;
}

/* Brings the maxima above all noted groups up to date. Not inline: the searches that call it seldom stay short. */
static __attribute__((noinline)) void max_tree_catch_up(const struct sg_max_tree *index)
{
    struct sg_max_tree_behind *behind = index->behind;
    for (uint32_t word = behind->from; word <= behind->to; word++) {
        for (; behind->groups[word]; behind->groups[word] &= behind->groups[word] - 1) {
            uint32_t group = word * 64 + (uint32_t)__builtin_ctzll(behind->groups[word]);
            const int32_t *buckets = index->level[0] + ((uint64_t)group << BITS);
            int32_t largest = group_largest_with(buckets, 0, buckets[0], 0);
            if (index->levels > 1 && index->level[1][group] != largest)
                max_tree_set_entry(index, 1, group, largest);
        }
    }
    behind->from = UINT32_MAX;
    behind->to = 0;
}

/* Before anything is looked for. */
static inline void max_tree_be_up_to_date(const struct sg_max_tree *index)
{
    if (index->behind && index->behind->from != UINT32_MAX)
        max_tree_catch_up(index);
}

void sg_max_tree_set(struct sg_max_tree *index, uint32_t bucket, int32_t size)
{
    assert(bucket < index->buckets && size >= 0);
    if (index->behind)
        max_tree_set_late(index, bucket, size);
    else
        max_tree_set_entry(index, 0, bucket, size);
}

void sg_max_tree_move(struct sg_max_tree *index, uint32_t from, uint32_t to, int32_t size)
{
    assert(from < index->buckets && to < index->buckets && size >= 0);
    if (index->behind) {
        max_tree_set_late(index, from, 0);
        max_tree_set_late(index, to, size);
        return;
    }
    if (from >> BITS != to >> BITS) {
        max_tree_set_entry(index, 0, to, size); /* first, so that taking out a smaller one ends where their paths meet */
        max_tree_set_entry(index, 0, from, 0);
        return;
    }
    /* Both in one group: its new maximum is found once, before either is stored. */
    int32_t *group = index->level[0] + (to & ~(uint32_t)MASK);
    int32_t now = group_largest_with(group, to & MASK, size, from & MASK);
    group[from & MASK] = 0;
    group[to & MASK] = size;
    if (index->levels > 1 && index->level[1][to >> BITS] != now)
        max_tree_set_entry(index, 1, to >> BITS, now);
}

/* Walks down from `bucket` of `level`, whose subtree is known to have something that fits. */
static uint32_t max_tree_descend_first(const struct sg_max_tree *index, uint32_t level, uint32_t bucket, int32_t size)
{
    for (; level > 0; level--) {
        bucket <<= BITS;
        bucket += (uint32_t)__builtin_ctz(group_fitting(index->level[level - 1] + bucket, size));
    }
    return bucket;
}

uint32_t sg_max_tree_first(const struct sg_max_tree *index, uint32_t from, int32_t size)
{
    max_tree_be_up_to_date(index);
    if (from == 0) { /* the common search starts at the root */
        uint32_t root = index->levels - 1;
        uint32_t bits = group_fitting(index->level[root], size);
        return bits ? max_tree_descend_first(index, root, (uint32_t)__builtin_ctz(bits), size) : SG_MAX_TREE_NONE;
    }
    /* Climb until something at or after `bucket` in its group of 16 fits. */
    uint32_t bucket = from;
    for (uint32_t level = 0; level < index->levels && bucket < index->width[level]; level++) {
        uint32_t bits = group_fitting(index->level[level] + (bucket & ~(uint32_t)MASK),
            size) & ~((UINT32_C(1) << (bucket & MASK)) - 1);
        if (bits)
            return max_tree_descend_first(index, level, (bucket & ~(uint32_t)MASK) + (uint32_t)__builtin_ctz(bits), size);
        bucket = (bucket >> BITS) + 1; /* the next group of a level above, since this one has nothing */
    }
    return SG_MAX_TREE_NONE;
}

uint32_t sg_max_tree_last(const struct sg_max_tree *index, uint32_t before, int32_t size)
{
    max_tree_be_up_to_date(index);
    if (before > index->buckets)
        before = index->buckets;
    if (before == 0)
        return SG_MAX_TREE_NONE;
    uint32_t level = 0, bucket = before - 1;
    /* Climb until something at or before `bucket` in its group of 16 fits. */
    for (;; level++) {
        uint32_t group = bucket & ~(uint32_t)MASK;
        uint32_t bits = group_fitting(index->level[level] + group, size) & ((UINT32_C(2) << (bucket & MASK)) - 1);
        if (bits) {
            bucket = group + 31 - (uint32_t)__builtin_clz(bits);
            break;
        }
        if (group == 0)
            return SG_MAX_TREE_NONE;
        bucket = (bucket >> BITS) - 1;
    }
    for (; level > 0; level--) {
        bucket <<= BITS;
        uint32_t bits = group_fitting(index->level[level - 1] + bucket, size);
        bucket += 31 - (uint32_t)__builtin_clz(bits);
    }
    return bucket;
}

int32_t sg_max_tree_largest(const struct sg_max_tree *index)
{
    max_tree_be_up_to_date(index);
    const int32_t *root = index->level[index->levels - 1];
    return group_largest_with(root, 0, root[0], 0);
}
