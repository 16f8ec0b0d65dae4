/* The indexes of a region: where free ranges and holes begin, how long they are, and whose the free ones are.

   Nouns. A *free range* is a free extent in the index. A *hole* is an extent without memory. A *bucket* is a stretch of
   addresses in which one free range at most begins. A *size class* is a list of free ranges of one owner that are about as
   long as each other.

   How: `free_tree` has the length of the range that begins in each bucket, so the lowest range of some length is found in
   the logarithm of the number of buckets. Size classes answer for the smallest one, where they are kept (`listed`).
   Limits: a range that changes its length within its class keeps its place in the list.

   For example, a range of 3,000 units: its highest bit is the eleventh, and the SG_SIZE_CLASS_BITS bits below that say
   which part of [2,048, 4,096) it is in. Cut to 2,990 units it stays in its class. */
#ifndef SG_CORE_SPACE_FREE_INDEX_H
#define SG_CORE_SPACE_FREE_INDEX_H

#include "core/space/owner_lists.h"
#include "core/space/tiling.h"
#include "base/wrap.h"

/* The free range that begins in a bucket in which one does. */
static inline uint32_t free_in_bucket_locked(const struct sg_region *region, uint32_t bucket) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    /* there are cells only where a bucket is a unit */
    uint32_t cell = bucket >> SG_CELL_SHIFT, id = region->lookup.cell_first + cell;
    bool is = cell < region->lookup.cells && extent_at(region, id)->begin == bucket &&
              extent_at(region, id)->state == SG_EXTENT_FREE;
    return is ? id : region->lookup.free_at[bucket];
}

/* The lowest free range of at least `units` that begins in *bucket or behind it, which goes on behind that range; 0: there
   is none. */
static inline uint32_t free_next_locked(const struct sg_region *region, uint32_t units, uint32_t *bucket)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t found = sg_max_tree_first(&region->lookup.free_tree, *bucket, (int32_t)units);
    if (found == SG_MAX_TREE_NONE)
        return 0;
    *bucket = found + 1;
    return region->lookup.free_at[found];
}

/* The position of the highest bit, and SG_SIZE_CLASS_BITS below it. */
static inline uint32_t size_class_of(uint32_t size)
{
    enum { CLASSES = 1 << SG_SIZE_CLASS_BITS };
    uint32_t high = 31 - (uint32_t)__builtin_clz(size);
    return high * CLASSES + (high >= SG_SIZE_CLASS_BITS ? size >> (high - SG_SIZE_CLASS_BITS) & (CLASSES - 1) : 0);
}

static inline struct sg_lists *lists_of_locked(struct sg_region *region, uint32_t owner) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_lists *lists = region->owned.lists[owner];
    if (lists)
        return lists;
    return owner == 0 || region->owned.listless >> owner & 1 ? &region->owned.common
                                                             : sg_region_make_lists_locked(region, owner);
}

/* The bit of `stocked` for some lists that hold what is `owner`'s. */
static inline uint64_t stock_bit(const struct sg_region *region, const struct sg_lists *lists, uint32_t owner)
{
    return lists == &region->owned.common ? 1 : UINT64_C(1) << owner;
}

static inline bool lists_empty(const struct sg_lists *lists)
{
    uint64_t any = 0;
    for (uint32_t word = 0; word < SG_SIZE_CLASSES / 64; word++)
        any |= lists->any[word];
    return any == 0;
}

static inline void size_class_insert_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id);
    region->quick.best_deferred = 0;
    struct sg_lists *lists = lists_of_locked(region, extent->owner);
    uint32_t class = size_class_of(extent->size), first = lists->first[class];
    extent->in_size_class.less = 0;
    extent->in_size_class.more = first;
    if (first)
        extent_at(region, first)->in_size_class.less = id;
    lists->first[class] = id;
    lists->any[class / 64] |= UINT64_C(1) << class % 64;
    region->owned.stocked |= stock_bit(region, lists, extent->owner);
}

static inline void size_class_remove_locked(struct sg_region *region, const struct sg_extent *extent) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t less = extent->in_size_class.less, more = extent->in_size_class.more;
    if (more)
        extent_at(region, more)->in_size_class.less = less;
    if (less) {
        extent_at(region, less)->in_size_class.more = more;
    } else {
        struct sg_lists *lists = lists_of_locked(region, extent->owner);
        uint32_t class = size_class_of(extent->size);
        lists->first[class] = more;
        if (!more)
            lists->any[class / 64] &= ~(UINT64_C(1) << class % 64);
        if (!more && lists_empty(lists))
            region->owned.stocked &= ~stock_bit(region, lists, extent->owner);
    }
}

static inline void free_insert_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id);
    uint32_t bucket = extent->begin >> region->bucket_shift;
    assert(sg_max_tree_get(&region->lookup.free_tree, bucket) == 0);
    extent->state = SG_EXTENT_FREE;
    region->lookup.free_at[bucket] = id;
    sg_max_tree_set(&region->lookup.free_tree, bucket, (int32_t)extent->size);
    region->lookup.whole_free += pages_inside(region, extent->begin, extent->size);
    region->owned.owners |= UINT64_C(1) << extent->owner;
    if (region->owned.listed)
        size_class_insert_locked(region, id);
    else if (sg_has_several_bits(region->owned.owners))
        sg_region_make_listed_locked(region);
}

static inline void free_remove_locked(struct sg_region *region, const struct sg_extent *extent) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    sg_max_tree_set(&region->lookup.free_tree, extent->begin >> region->bucket_shift, 0);
    region->lookup.whole_free -= pages_inside(region, extent->begin, extent->size);
    if (region->owned.listed)
        size_class_remove_locked(region, extent);
}

/* Moves the bounds of a free range. */
static inline void free_resize_locked(struct sg_region *region, uint32_t id, uint32_t begin, uint32_t size)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id);
    uint32_t old = extent->begin >> region->bucket_shift, bucket = begin >> region->bucket_shift;
    bool moves = region->owned.listed && size_class_of(extent->size) != size_class_of(size);
    region->quick.best_deferred = 0;
    region->lookup.whole_free -= pages_inside(region, extent->begin, extent->size);
    region->lookup.whole_free += pages_inside(region, begin, size);
    if (moves)
        size_class_remove_locked(region, extent);
    extent->begin = begin;
    extent->size = size;
    if (moves)
        size_class_insert_locked(region, id);
    if (old != bucket)
        region->lookup.free_at[bucket] = id;
    sg_max_tree_move(&region->lookup.free_tree, old, bucket, (int32_t)size);
}

/* Gives what the free range `from` is, and its entry, to the extent `to`, which has the bounds that it shall have. */
static inline void free_pass_locked(struct sg_region *region, uint32_t from, uint32_t to) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *old = extent_at(region, from), *extent = extent_at(region, to);
    const struct sg_extent bounds = *extent;
    uint32_t bucket = extent->begin >> region->bucket_shift;
    assert(region->fit == SG_FIT_LOWEST && old->state == SG_EXTENT_FREE);
    region->lookup.whole_free += pages_inside(region, extent->begin, extent->size);
    region->lookup.whole_free -= pages_inside(region, old->begin, old->size);
    if (region->owned.listed)
        size_class_remove_locked(region, old);
    *extent = *old;
    extent->begin = bounds.begin;
    extent->size = bounds.size;
    extent->prev = bounds.prev;
    extent->next = bounds.next;
    if (region->owned.listed)
        size_class_insert_locked(region, to);
    region->lookup.free_at[bucket] = to;
    sg_max_tree_move(&region->lookup.free_tree, old->begin >> region->bucket_shift, bucket, (int32_t)extent->size);
}

/* The free range from `id` up that begins in a bucket, behind fragments there; 0 if there is none. */
static inline uint32_t free_up_in_bucket_locked(const struct sg_region *region, uint32_t id, uint32_t bucket)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    while (extent_has_state_locked(region, id, SG_EXTENT_FRAGMENT) && extent_begins_in_locked(region, id, bucket))
        id = extent_at(region, id)->next;
    return extent_has_state_locked(region, id, SG_EXTENT_FREE) && extent_begins_in_locked(region, id, bucket) ? id : 0;
}

/* The free range from `id` down that begins in a bucket, below fragments there; 0 if none does. A
   fragment begins and ends in one bucket. */
static inline uint32_t free_down_in_bucket_locked(const struct sg_region *region, uint32_t id, uint32_t bucket)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    while (extent_has_state_locked(region, id, SG_EXTENT_FRAGMENT)) {
        assert(extent_begins_in_locked(region, id, bucket));
        id = extent_at(region, id)->prev;
    }
    return extent_has_state_locked(region, id, SG_EXTENT_FREE) && extent_begins_in_locked(region, id, bucket) ? id : 0;
}

/* Free memory that a block was cut from the beginning of keeps [begin, begin + size). */
static inline void free_shrink_locked(struct sg_region *region, uint32_t id, uint32_t begin, uint32_t size)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id);
    if (free_up_in_bucket_locked(region, extent->next, begin >> region->bucket_shift)) {
        free_remove_locked(region, extent);
        extent->begin = begin;
        extent->size = size;
        extent->state = SG_EXTENT_FRAGMENT;
    } else {
        free_resize_locked(region, id, begin, size);
    }
}

static inline void hole_insert_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id);
    uint32_t page = page_of(region, extent->begin);
    assert(extent->begin % region->page_units == 0 && extent->size % region->page_units == 0);
    extent->state = SG_EXTENT_HOLE;
    region->lookup.hole_at[page] = id;
    sg_max_tree_set(&region->lookup.hole_tree, page, (int32_t)page_of(region, extent->size));
}

static inline void hole_remove_locked(struct sg_region *region, const struct sg_extent *extent) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    sg_max_tree_set(&region->lookup.hole_tree, page_of(region, extent->begin), 0);
}

#endif
