#include "space/max_tree.h"

#include <assert.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "meta.h"

enum { BITS = 4, MASK = SG_INDEX_FANOUT - 1 };

/* Bit i is set where group[i] >= size. */
static inline uint32_t fitting(const int32_t *group, int32_t size)
{
#if defined(__SSE2__)
    __m128i limit = _mm_set1_epi32(size - 1);
    uint32_t bits = 0;
    for (int quarter = 0; quarter < 4; quarter++) {
        __m128i four = _mm_load_si128((const __m128i *)(const void *)(group + 4 * quarter));
        bits |= (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(four, limit))) << (4 * quarter);
    }
    return bits;
#else
    uint32_t bits = 0;
    for (int i = 0; i < SG_INDEX_FANOUT; i++)
        bits |= (uint32_t)(group[i] >= size) << i;
    return bits;
#endif
}

#if defined(__SSE2__)
static inline __m128i larger_of(__m128i a, __m128i b)
{
    __m128i less = _mm_cmpgt_epi32(b, a);
    return _mm_or_si128(_mm_and_si128(less, b), _mm_andnot_si128(less, a));
}
#endif

/* The largest of a group as if group[lane] were `value` and group[gone] were 0 (`gone` may be `lane`: no other). The
   group is read before the new value is stored. A vector read over a word just written stalls until that store has
   left the processor's buffer, which cost more than all else here. */
static inline int32_t largest_with(const int32_t *group, uint32_t lane, int32_t value, uint32_t gone)
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
    for (uint32_t i = 0; i < SG_INDEX_FANOUT; i++)
        if (i != lane && i != gone && group[i] > largest)
            largest = group[i];
    return largest;
#endif
}

static uint64_t rounded(uint64_t entries)
{
    return (entries + MASK) & ~(uint64_t)MASK;
}

bool sg_index_init(struct sg_index *index, uint32_t slots, enum sg_index_kind kind)
{
    uint64_t entries = 0;
    uint32_t levels = 0;
    for (uint64_t width = slots;; width = (width + MASK) >> BITS) {
        entries += rounded(width);
        levels++;
        if (width <= SG_INDEX_FANOUT)
            break;
    }
    assert(levels <= SG_INDEX_LEVELS);
    uint64_t words = kind == SG_INDEX_LATE ? (rounded(slots) / SG_INDEX_FANOUT + 63) / 64 : 0;
    uint64_t bytes = entries * sizeof(int32_t),
             bytes_behind = words ? sizeof(struct sg_index_behind) + words * sizeof(uint64_t) : 0;
    int32_t *memory = sg_meta_map(bytes + bytes_behind);
    if (!memory)
        return false;
    *index = (struct sg_index){.levels = levels, .slots = slots, .memory = memory, .bytes = bytes + bytes_behind};
    if (words) {
        index->behind = (void *)(memory + entries); /* whole groups of 16 come before it */
        index->behind->from = UINT32_MAX;
    }
    uint64_t width = slots;
    for (uint32_t level = 0; level < levels; level++, width = (width + MASK) >> BITS) {
        index->level[level] = memory;
        index->width[level] = (uint32_t)rounded(width);
        memory += rounded(width);
    }
    return true;
}

void sg_index_fini(struct sg_index *index)
{
    sg_meta_unmap(index->memory, index->bytes);
    *index = (struct sg_index){0};
}

/* Sets one entry of a level and brings the levels above up to date. */
static inline void set_entry(const struct sg_index *index, uint32_t level, uint32_t slot, int32_t size)
{
    for (;; level++) {
        int32_t *entry = &index->level[level][slot];
        if (level + 1 == index->levels) {
            *entry = size;
            return;
        }
        uint32_t parent = slot >> BITS;
        int32_t known = index->level[level + 1][parent], now = known;
        if (size > known)
            now = size;
        else if (*entry == known && size < known)
            now = largest_with(entry - (slot & MASK), slot & MASK, size, slot & MASK);
        *entry = size;
        if (now == known)
            return;
        size = now;
        slot = parent;
    }
}

/* Sets a slot of an index whose maxima follow later. */
static inline void set_late(struct sg_index *index, uint32_t slot, int32_t size)
{
    struct sg_index_behind *behind = index->behind;
    uint32_t group = slot >> BITS, word = group / 64;
    index->level[0][slot] = size;
    behind->groups[word] |= UINT64_C(1) << group % 64;
    behind->from = word < behind->from ? word : behind->from;
    behind->to = word > behind->to ? word : behind->to;
}

static __attribute__((noinline)) void catch_up(const struct sg_index *index)
{
    struct sg_index_behind *behind = index->behind;
    for (uint32_t word = behind->from; word <= behind->to; word++) {
        for (; behind->groups[word]; behind->groups[word] &= behind->groups[word] - 1) {
            uint32_t group = word * 64 + (uint32_t)__builtin_ctzll(behind->groups[word]);
            const int32_t *slots = index->level[0] + ((uint64_t)group << BITS);
            int32_t largest = largest_with(slots, 0, slots[0], 0);
            if (index->levels > 1 && index->level[1][group] != largest)
                set_entry(index, 1, group, largest);
        }
    }
    behind->from = UINT32_MAX;
    behind->to = 0;
}

/* Before anything is looked for. */
static inline void be_up_to_date(const struct sg_index *index)
{
    if (index->behind && index->behind->from != UINT32_MAX)
        catch_up(index);
}

void sg_index_set(struct sg_index *index, uint32_t slot, int32_t size)
{
    assert(slot < index->slots && size >= 0);
    if (index->behind)
        set_late(index, slot, size);
    else
        set_entry(index, 0, slot, size);
}

void sg_index_move(struct sg_index *index, uint32_t from, uint32_t to, int32_t size)
{
    assert(from < index->slots && to < index->slots && size >= 0);
    if (index->behind) {
        set_late(index, from, 0);
        set_late(index, to, size);
        return;
    }
    if (from >> BITS != to >> BITS) {
        set_entry(index, 0, to, size); /* first, so that taking out a smaller one ends where their paths meet */
        set_entry(index, 0, from, 0);
        return;
    }
    int32_t *group = index->level[0] + (to & ~(uint32_t)MASK);
    int32_t now = largest_with(group, to & MASK, size, from & MASK);
    group[from & MASK] = 0;
    group[to & MASK] = size;
    if (index->levels > 1 && index->level[1][to >> BITS] != now)
        set_entry(index, 1, to >> BITS, now);
}

/* Walks down from `slot` of `level`, whose subtree is known to have something that fits. */
static uint32_t descend_first(const struct sg_index *index, uint32_t level, uint32_t slot, int32_t size)
{
    for (; level > 0; level--) {
        slot <<= BITS;
        slot += (uint32_t)__builtin_ctz(fitting(index->level[level - 1] + slot, size));
    }
    return slot;
}

uint32_t sg_index_first(const struct sg_index *index, uint32_t from, int32_t size)
{
    be_up_to_date(index);
    if (from == 0) { /* the common search starts at the root */
        uint32_t root = index->levels - 1;
        uint32_t bits = fitting(index->level[root], size);
        return bits ? descend_first(index, root, (uint32_t)__builtin_ctz(bits), size) : SG_INDEX_NONE;
    }
    /* Climb until something at or after `slot` in its group of 16 fits. */
    uint32_t slot = from;
    for (uint32_t level = 0; level < index->levels && slot < index->width[level]; level++) {
        uint32_t bits = fitting(index->level[level] + (slot & ~(uint32_t)MASK), size) & ~((UINT32_C(1) << (slot & MASK)) - 1);
        if (bits)
            return descend_first(index, level, (slot & ~(uint32_t)MASK) + (uint32_t)__builtin_ctz(bits), size);
        slot = (slot >> BITS) + 1;
    }
    return SG_INDEX_NONE;
}

uint32_t sg_index_last(const struct sg_index *index, uint32_t before, int32_t size)
{
    be_up_to_date(index);
    if (before > index->slots)
        before = index->slots;
    if (before == 0)
        return SG_INDEX_NONE;
    uint32_t level = 0, slot = before - 1;
    /* Climb until something at or before `slot` in its group of 16 fits. */
    for (;; level++) {
        uint32_t group = slot & ~(uint32_t)MASK;
        uint32_t bits = fitting(index->level[level] + group, size) & ((UINT32_C(2) << (slot & MASK)) - 1);
        if (bits) {
            slot = group + 31 - (uint32_t)__builtin_clz(bits);
            break;
        }
        if (group == 0)
            return SG_INDEX_NONE;
        slot = (slot >> BITS) - 1;
    }
    for (; level > 0; level--) {
        slot <<= BITS;
        uint32_t bits = fitting(index->level[level - 1] + slot, size);
        slot += 31 - (uint32_t)__builtin_clz(bits);
    }
    return slot;
}

int32_t sg_index_largest(const struct sg_index *index)
{
    be_up_to_date(index);
    const int32_t *root = index->level[index->levels - 1];
    return largest_with(root, 0, root[0], 0);
}
