/* The indexes of a region: where free ranges and holes begin, how long they are, and whose the free ones are.

   Nouns. A *free range* is a free extent in the index. A *hole* is an extent without memory. A *bucket* is a stretch
   of addresses in which one free range at most begins. A *size class* is a list of free ranges of one owner that are
   about as long as each other.

   Why two indexes: the small region wants the lowest range that fits, because small blocks that stand together leave
   whole pages free. The regular region wants the smallest, because a large block in a larger range spoils that.

   How: `free_tree` has the length of the range that begins in each bucket. So the lowest range of some length is
   found in the logarithm of the number of buckets. Size classes answer for the smallest one, where they are kept
   (`listed`). Limits: a range that changes its length within its class keeps its place in the list, so a list is in
   no order.

   For example, a range of 3,000 units: its highest bit is bit 11, and the SG_SIZE_CLASS_BITS (3) bits below that are
   011. So its class is 11 * 8 + 3 = 91, which is of 2,816 to 3,071 units. Cut to 2,990 units it stays there. A
   request of 2,900 looks through class 91, where a range may be too short, and then through larger ones. */
#ifndef SG_CORE_SPACE_FREE_INDEX_H
#define SG_CORE_SPACE_FREE_INDEX_H

#include "core/space/owner_lists.h"
#include "core/space/tiling.h"
#include "base/wrap.h"

/* The free range that begins in a bucket of which the caller knows that one does. Its cell has it, or the table. */
static inline uint32_t free_in_bucket_locked(const struct sg_region *region, uint32_t bucket) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    /* there are cells only where a bucket is a unit */
    uint32_t cell = bucket >> SG_CELL_SHIFT, id = region->lookup.cell_first + cell;
    bool is = cell < region->lookup.cells && extent_at(region, id)->begin == bucket &&
              extent_at(region, id)->state == SG_EXTENT_FREE;
    return is ? id : region->lookup.free_at[bucket];
}

/* The lowest free range of at least `units` that begins in *bucket or behind it, which goes on behind that range; 0:
   there is none. */
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

/* The size class of a length in units: the position of its highest bit, and the SG_SIZE_CLASS_BITS bits below that.
   From 8 units on there are eight classes to each power of two. */
static inline uint32_t size_class_of(uint32_t size)
{
    enum { CLASSES = 1 << SG_SIZE_CLASS_BITS };
    uint32_t high = 31 - (uint32_t)__builtin_clz(size);
    return high * CLASSES + (high >= SG_SIZE_CLASS_BITS ? size >> (high - SG_SIZE_CLASS_BITS) & (CLASSES - 1) : 0);
}

/* The lists that hold what is `owner`'s, made now if it is the owner's first range. Where there is no host memory for
   them its ranges go to `common`, for good. */
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

/* True if no list of these holds a range. */
static inline bool lists_empty(const struct sg_lists *lists)
{
    uint64_t any = 0;
    for (uint32_t word = 0; word < SG_SIZE_CLASSES / 64; word++)
        any |= lists->any[word];
    return any == 0;
}

/* Puts a free range into the list of its owner and size, in front: what was freed last is likeliest to be in a
   cache. */
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

/* Takes a free range out of its list. Its size and owner must still be those with which it went in. */
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

/* Makes an extent a free range: enters it in the tree, in the whole pages and, where they are kept, in the lists. No
   other free range begins in its bucket (free_put_locked() sees to that). The lists begin when a second owner's range
   comes. */
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

/* Takes a free range out of the index. The caller gives it another state at once. */
static inline void free_remove_locked(struct sg_region *region, const struct sg_extent *extent) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    sg_max_tree_set(&region->lookup.free_tree, extent->begin >> region->bucket_shift, 0);
    region->lookup.whole_free -= pages_inside(region, extent->begin, extent->size);
    if (region->owned.listed)
        size_class_remove_locked(region, extent);
}

/* Moves the bounds of a free range in one step, which costs the tree one walk where a removal and an insertion cost
   two. */
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

/* Lets the extent `to`, whose bounds are set, be the free range that `from` was. A block that is cut from the low end
   of a range keeps the range's extent, which is its cell's. The rest goes on in `to`. For the small region only. */
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

/* The free range that begins in a bucket, from extent `id` up and behind fragments; 0 if none does. */
static inline uint32_t free_up_in_bucket_locked(const struct sg_region *region, uint32_t id, uint32_t bucket)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    while (extent_has_state_locked(region, id, SG_EXTENT_FRAGMENT) && extent_begins_in_locked(region, id, bucket))
        id = extent_at(region, id)->next;
    return extent_has_state_locked(region, id, SG_EXTENT_FREE) && extent_begins_in_locked(region, id, bucket) ? id : 0;
}

/* The free range that begins in a bucket, from extent `id` down and below fragments; 0 if none does. A fragment is
   shorter than a bucket, so one that follows a range of this bucket begins here too. */
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

/* Leaves [begin, begin + size) of a free range from whose low end a block was cut. The rest may begin in a bucket in
   which the next free range begins already. A bucket has one entry, so the rest is a fragment then. */
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

/* Makes an extent, which is whole pages, a hole: it is found by its first page from here on. */
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

/* Takes a hole out of its index. The caller gives it another state at once. */
static inline void hole_remove_locked(struct sg_region *region, const struct sg_extent *extent) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    sg_max_tree_set(&region->lookup.hole_tree, page_of(region, extent->begin), 0);
}

#endif
