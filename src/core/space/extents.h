/* What the files that work on a region share: extents in address order, and the ranges that are free or holes. Others
   read them, and keep things in extents that belong to no region. */
#ifndef SG_EXTENTS_H
#define SG_EXTENTS_H

#include <assert.h>

#include "space/region.h"
#include "wrap.h"

/* Not given to ordinary blocks, so that growing, moving and undoing either never run out half-way. */
enum { EXTENTS_SPARE_OF_CLAIM = SG_EXTENTS_SPARE / 4, EXTENTS_SPARE_OF_CUT = SG_EXTENTS_SPARE / 8 };

static inline bool extents_left_locked(const struct sg_extents *extents, uint32_t want) SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    return extents->capacity - extents->live > want;
}

/* Callers have asked extents_left_locked(). */
static inline uint32_t extents_take_locked(struct sg_extents *extents) SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    uint32_t id = extents->unused;
    extents->live++;
    if (id)
        extents->unused = extents->extent[id].next;
    else
        id = extents->used++;
    assert(id < extents->capacity);
    return id;
}

static inline void extents_give_back_locked(struct sg_extents *extents, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    extents->live--;
    extents->extent[id].state = SG_EXTENT_UNUSED;
    if (id >= extents->capacity)
        return; /* a cell is for whatever begins there */
    extents->extent[id].next = extents->unused;
    extents->unused = id;
}

static inline struct sg_extent *extent_at(const struct sg_region *region, uint32_t id)
{
    return &region->extent[id];
}

/* An extent for what begins at `begin`: its cell's if that is unused. */
static inline uint32_t extent_new_at_locked(struct sg_region *region, uint32_t begin) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t cell = begin >> SG_CELL_SHIFT, id = region->lookup.cell_first + cell;
    if (cell >= region->lookup.cells || extent_at(region, id)->state != SG_EXTENT_UNUSED)
        return extents_take_locked(region->extents);
    region->extents->live++;
    return id;
}

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

static inline uint32_t extent_end(const struct sg_extent *extent)
{
    return extent->begin + extent->size;
}

static inline uint32_t page_of(const struct sg_region *region, uint32_t position)
{
    return region->page_shift ? position >> region->page_shift : position / region->page_units;
}

/* Pages that lie entirely inside [begin, begin + size). */
static inline uint32_t pages_inside(const struct sg_region *region, uint32_t begin, uint32_t size)
{
    if (size < region->page_units)
        return 0;
    uint32_t from = page_of(region, begin + region->page_units - 1), to = page_of(region, begin + size);
    return to > from ? to - from : 0;
}

/* The position of the highest bit, and SG_SIZE_CLASS_BITS below it. */
static inline uint32_t size_class_of(uint32_t size)
{
    enum { CLASSES = 1 << SG_SIZE_CLASS_BITS };
    uint32_t high = 31 - (uint32_t)__builtin_clz(size);
    return high * CLASSES + (high >= SG_SIZE_CLASS_BITS ? size >> (high - SG_SIZE_CLASS_BITS) & (CLASSES - 1) : 0);
}

/* What only regions with owners need (stream_extents.c): the lists of one more owner, or `common`; all free ranges into
   lists. */
struct sg_lists *sg_region_make_lists(struct sg_region *region, uint32_t owner);
void sg_region_make_listed_locked(struct sg_region *region) SG_REQUIRES(lock);
/* [begin, begin + size) has become free, for all after some work. */
void sg_region_note_after_locked(struct sg_region *region, uint32_t begin, uint32_t size, struct sg_after after)
    SG_REQUIRES(lock);

static inline struct sg_lists *lists_of_locked(struct sg_region *region, uint32_t owner) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_lists *lists = region->owned.lists[owner];
    if (lists)
        return lists;
    return owner == 0 || region->owned.listless >> owner & 1 ? &region->owned.common
                                                             : sg_region_make_lists(region, owner);
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

/* Puts a new extent with these bounds after `left`. */
static inline uint32_t extent_insert_after_locked(struct sg_region *region, uint32_t left, uint32_t begin,
    uint32_t size) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t id = extent_new_at_locked(region, begin), right = extent_at(region, left)->next;
    *extent_at(region, id) =
        (struct sg_extent){.begin = begin, .size = size, .prev = left, .next = right, .region = region->index};
    extent_at(region, left)->next = id;
    if (right)
        extent_at(region, right)->prev = id;
    return id;
}

/* Puts a new extent with these bounds before `right`. */
static inline uint32_t extent_insert_before_locked(struct sg_region *region, uint32_t right, uint32_t begin,
    uint32_t size) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t left = extent_at(region, right)->prev;
    if (left)
        return extent_insert_after_locked(region, left, begin, size);
    uint32_t id = extent_new_at_locked(region, begin);
    *extent_at(region, id) = (struct sg_extent){.begin = begin, .size = size, .next = right, .region = region->index};
    extent_at(region, right)->prev = id;
    region->first = id;
    return id;
}

static inline void extent_unlink_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id);
    if (extent->prev)
        extent_at(region, extent->prev)->next = extent->next;
    else
        region->first = extent->next;
    if (extent->next)
        extent_at(region, extent->next)->prev = extent->prev;
    extents_give_back_locked(region->extents, id);
}

static inline void block_insert_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    extent_at(region, id)->state = SG_EXTENT_BLOCK;
    region->lookup.block_at[extent_at(region, id)->begin >> region->bucket_shift] = id;
}

/* Whether free memory there has belonged to more than one (nobody counts as one). */
static inline bool region_has_several_owners_locked(const struct sg_region *region) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return sg_has_several_bits(region->owned.owners);
}

static inline bool extent_is_complete_locked(const struct sg_region *region, const struct sg_extent *extent)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent->owner == 0 || region->owned.clocks->complete[extent->owner] >= extent->seq;
}

/* Whether `slot` may use a free range as a whole. */
static inline bool extent_is_usable_locked(const struct sg_region *region, const struct sg_extent *extent, sg_slot slot)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent->owner == slot || extent_is_complete_locked(region, extent) ||
           (slot && region->owned.clocks->ordered_after[slot].at[extent->owner] >= extent->seq);
}

/* Whether two free neighbours can be one range without a loss worth mentioning, and whose it is then. Two of one
   owner always can. A complete one joins the other if that is larger, or if the complete one is less than a page. */
static inline bool extents_may_join_locked(const struct sg_region *region, const struct sg_extent *a,
    const struct sg_extent *b, uint32_t *ret_owner, uint64_t *ret_seq) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    const struct sg_extent *whose = a->seq > b->seq ? a : b;
    if (a->owner != b->owner) {
        bool a_complete = extent_is_complete_locked(region, a), b_complete = extent_is_complete_locked(region, b);
        const struct sg_extent *larger = a->size > b->size ? a : b;
        if (a_complete && b_complete)
            whose = larger;
        else if (a_complete && (larger == b || a->size < region->page_units))
            whose = b;
        else if (b_complete && (larger == a || b->size < region->page_units))
            whose = a;
        else
            return false;
    }
    *ret_owner = whose->owner;
    *ret_seq = whose->seq;
    return true;
}

static inline bool extent_has_state_locked(const struct sg_region *region, uint32_t id, enum sg_extent_state state)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return id && extent_at(region, id)->state == state;
}

static inline bool extent_begins_in_locked(const struct sg_region *region, uint32_t id, uint32_t bucket)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent_at(region, id)->begin >> region->bucket_shift == bucket;
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

/* Turns an extent that is in no index, and joins nothing, into a free range. More than two neighbours may begin in one
   bucket. Only the last of them is a range. The others, shorter than a bucket, are held until they can
   join. */
static inline void free_put_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t bucket = extent_at(region, id)->begin >> region->bucket_shift,
             below = free_down_in_bucket_locked(region, extent_at(region, id)->prev, bucket);
    if (below) {
        free_remove_locked(region, extent_at(region, below));
        extent_at(region, below)->state = SG_EXTENT_FRAGMENT;
    }
    if (free_up_in_bucket_locked(region, extent_at(region, id)->next, bucket))
        extent_at(region, id)->state = SG_EXTENT_FRAGMENT;
    else
        free_insert_locked(region, id);
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

/* Joins an extent that is in no index with a neighbour that is free or held, if that may be. The neighbour's extent
   goes. */
static inline bool extent_absorb_locked(struct sg_region *region, uint32_t id, uint32_t other) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id), *piece = extent_at(region, other);
    uint32_t owner;
    uint64_t seq;
    if ((piece->state != SG_EXTENT_FREE && piece->state != SG_EXTENT_FRAGMENT) ||
        !extents_may_join_locked(region, extent, piece, &owner, &seq))
        return false;
    if (piece->state == SG_EXTENT_FREE)
        free_remove_locked(region, piece);
    extent->begin = piece->begin < extent->begin ? piece->begin : extent->begin;
    extent->size += piece->size;
    extent->owner = owner;
    extent->seq = seq;
    extent_unlink_locked(region, other);
    return true;
}

/* Turns an extent into free memory where owners differ, or where a neighbour is a fragment. */
static inline void extent_coalesce_mixed_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    for (bool more = true; more;) {
        uint32_t prev = extent_at(region, id)->prev, next = extent_at(region, id)->next;
        more = (prev && extent_absorb_locked(region, id, prev)) || (next && extent_absorb_locked(region, id, next));
    }
    free_put_locked(region, id);
}

/* Whether a neighbour is free or a fragment, and not simply another part of what `extent` is part of. */
static inline bool extent_is_other(const struct sg_extent *neighbour, const struct sg_extent *extent)
{
    return neighbour->state == SG_EXTENT_FRAGMENT ||
        (neighbour->state == SG_EXTENT_FREE && neighbour->owner != extent->owner);
}

/* Turns an extent that is in no index into free memory, joined with its free neighbours. */
static inline void extent_coalesce_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id);
    uint32_t prev = extent->prev, next = extent->next;
    bool left = prev && extent_at(region, prev)->state == SG_EXTENT_FREE;
    bool right = next && extent_at(region, next)->state == SG_EXTENT_FREE;
    if ((prev && extent_is_other(extent_at(region, prev), extent)) ||
        (next && extent_is_other(extent_at(region, next), extent))) {
        extent_coalesce_mixed_locked(region, id);
        return;
    }
    if (left) { /* the larger range first: what is then taken out below it changes nothing higher up in the index */
        struct sg_extent *other = extent_at(region, prev);
        uint32_t size = extent->size;
        other->seq = other->seq > extent->seq ? other->seq : extent->seq;
        extent_unlink_locked(region, id);
        if (right) {
            struct sg_extent *last = extent_at(region, next);
            other->seq = other->seq > last->seq ? other->seq : last->seq;
            free_resize_locked(region, prev, other->begin, other->size + size + last->size);
            free_remove_locked(region, last);
            extent_unlink_locked(region, next);
        } else {
            free_resize_locked(region, prev, other->begin, other->size + size);
        }
    } else if (right && region->lookup.cells) { /* the neighbour's entry moves down to where the joined range begins */
        struct sg_extent *other = extent_at(region, next);
        other->seq = other->seq > extent->seq ? other->seq : extent->seq;
        extent->size += other->size;
        free_pass_locked(region, next, id);
        extent_unlink_locked(region, next);
    } else if (right) {
        struct sg_extent *other = extent_at(region, next);
        uint32_t begin = extent->begin, size = extent->size;
        other->seq = other->seq > extent->seq ? other->seq : extent->seq;
        extent_unlink_locked(region, id);
        free_resize_locked(region, next, begin, size + other->size);
    } else {
        free_insert_locked(region, id);
    }
}

#endif
