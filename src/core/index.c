#include "index.h"

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

static inline int32_t largest_of(const int32_t *group)
{
#if defined(__SSE2__)
    const __m128i *four = (const __m128i *)(const void *)group;
    __m128i largest = _mm_load_si128(four);
    for (int quarter = 1; quarter < 4; quarter++) {
        __m128i other = _mm_load_si128(four + quarter), less = _mm_cmpgt_epi32(other, largest);
        largest = _mm_or_si128(_mm_and_si128(less, other), _mm_andnot_si128(less, largest));
    }
    for (int half = 0; half < 2; half++) { /* the other two lanes, then the other one */
        __m128i other = half ? _mm_shuffle_epi32(largest, 0xb1) : _mm_shuffle_epi32(largest, 0x4e), less = _mm_cmpgt_epi32(other, largest);
        largest = _mm_or_si128(_mm_and_si128(less, other), _mm_andnot_si128(less, largest));
    }
    return _mm_cvtsi128_si32(largest);
#else
    int32_t largest = group[0];
    for (int i = 1; i < SG_INDEX_FANOUT; i++)
        largest = group[i] > largest ? group[i] : largest;
    return largest;
#endif
}

static uint64_t rounded(uint64_t entries)
{
    return (entries + MASK) & ~(uint64_t)MASK;
}

bool sg_index_init(struct sg_index *index, uint32_t slots)
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
    int32_t *memory = sg_meta_map(entries * sizeof *memory);
    if (!memory)
        return false;
    *index = (struct sg_index){.levels = levels, .slots = slots, .memory = memory, .bytes = entries * sizeof *memory};
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

/* Brings the levels above up to date: below `slot` of `level` the largest was `old` and is `size` now. */
static inline void propagate(struct sg_index *index, uint32_t level, uint32_t slot, int32_t old, int32_t size)
{
    while (++level < index->levels) {
        uint32_t parent = slot >> BITS;
        int32_t known = index->level[level][parent], now = known;
        if (size > known)
            now = size;
        else if (old == known && size < known)
            now = largest_of(index->level[level - 1] + (slot & ~(uint32_t)MASK));
        if (now == known)
            return;
        index->level[level][parent] = now;
        old = known;
        size = now;
        slot = parent;
    }
}

void sg_index_set(struct sg_index *index, uint32_t slot, int32_t size)
{
    assert(slot < index->slots && size >= 0);
    int32_t old = index->level[0][slot];
    index->level[0][slot] = size;
    propagate(index, 0, slot, old, size);
}

void sg_index_move(struct sg_index *index, uint32_t from, uint32_t to, int32_t size)
{
    assert(from < index->slots && to < index->slots && size >= 0);
    if (from >> BITS != to >> BITS) {
        sg_index_set(index, from, 0);
        sg_index_set(index, to, size);
        return;
    }
    index->level[0][from] = 0;
    index->level[0][to] = size;
    if (index->levels > 1) {
        uint32_t parent = to >> BITS;
        int32_t known = index->level[1][parent], now = largest_of(index->level[0] + (parent << BITS));
        index->level[1][parent] = now;
        if (now != known)
            propagate(index, 1, parent, known, now);
    }
}

/* Walks down from `slot` of `level`, whose subtree is known to have something that fits. */
static uint32_t descend_first(const struct sg_index *index, uint32_t level, uint32_t slot, int32_t size)
{
    while (level-- > 0) {
        slot <<= BITS;
        slot += (uint32_t)__builtin_ctz(fitting(index->level[level] + slot, size));
    }
    return slot;
}

uint32_t sg_index_first(const struct sg_index *index, uint32_t from, int32_t size)
{
    if (from == 0) { /* the common search starts at the root */
        uint32_t root = index->levels - 1;
        uint32_t bits = fitting(index->level[root], size);
        return bits ? descend_first(index, root, (uint32_t)__builtin_ctz(bits), size) : SG_INDEX_NONE;
    }
    /* Climb until something at or after `slot` in its group of 16 fits. */
    uint32_t slot = from;
    for (uint32_t level = 0; level < index->levels && slot < index->width[level]; level++) {
        uint32_t bits = fitting(index->level[level] + (slot & ~(uint32_t)MASK), size) & (UINT32_MAX << (slot & MASK));
        if (bits)
            return descend_first(index, level, (slot & ~(uint32_t)MASK) + (uint32_t)__builtin_ctz(bits), size);
        slot = (slot >> BITS) + 1;
    }
    return SG_INDEX_NONE;
}

uint32_t sg_index_last(const struct sg_index *index, uint32_t before, int32_t size)
{
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
    while (level-- > 0) {
        slot <<= BITS;
        uint32_t bits = fitting(index->level[level] + slot, size);
        slot += 31 - (uint32_t)__builtin_clz(bits);
    }
    return slot;
}

int32_t sg_index_largest(const struct sg_index *index)
{
    return largest_of(index->level[index->levels - 1]);
}
