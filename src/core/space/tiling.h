/* The tiling of a region: its extents in address order, without gap or overlap.

   Nouns. A *position* is an offset in units. A *page* is `page_units` of them. An extent's neighbours are those that
   touch it. How: each extent names the ones before and after it; inserting and unlinking change these links alone,
   and no index (free_index.h). Limits: one block and one free range at most begin in a bucket.

   Why links and no array by address: a page of 2 MiB has 4,096 units, and most of them begin nothing. Splitting and
   joining touch the two neighbours only, which the operation reads anyhow.

   For example, a region with pages of 4,096 units (2 MiB): position 5,000 is in page 1. The 9,000 units from there
   are [5,000, 14,000), and only page 2 lies inside, [8,192, 12,288). So pages_inside(region, 5000, 9000) is 1. */
#ifndef SG_CORE_SPACE_TILING_H
#define SG_CORE_SPACE_TILING_H

#include "core/space/region.h"

/* The extent of a number, which is not 0. The pointer is good for as long as the device. */
static inline struct sg_extent *extent_at(const struct sg_region *region, uint32_t id)
{
    return &region->extent[id];
}

/* Takes an extent for what begins at position `begin`: the one of its cell where that is unused, else any. The extent
   is not filled in yet, and belongs to no neighbour. */
static inline uint32_t extent_new_at_locked(struct sg_region *region, uint32_t begin) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t cell = begin >> SG_CELL_SHIFT, id = region->lookup.cell_first + cell;
    if (cell >= region->lookup.cells || extent_at(region, id)->state != SG_EXTENT_UNUSED)
        return extents_take_locked(region->extents);
    region->extents->live++;
    return id;
}

/* The position behind an extent. */
static inline uint32_t extent_end(const struct sg_extent *extent)
{
    return extent->begin + extent->size;
}

/* The page that a position is in. A division costs more than all else on this way. So pages of a power of two of units
   have a shift: all but those of huge blocks. */
static inline uint32_t page_of(const struct sg_region *region, uint32_t position)
{
    return region->page_shift ? position >> region->page_shift : position / region->page_units;
}

/* How many pages lie entirely inside [begin, begin + size). */
static inline uint32_t pages_inside(const struct sg_region *region, uint32_t begin, uint32_t size)
{
    if (size < region->page_units)
        return 0;
    uint32_t from = page_of(region, begin + region->page_units - 1), to = page_of(region, begin + size);
    return to > from ? to - from : 0;
}

/* Puts a new extent with these bounds after `left`, and returns it. It is in no state but UNUSED yet: the caller
   gives it one, and shortens `left`. */
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

/* Puts a new extent with these bounds before `right`, in the way of extent_insert_after_locked(). The region's first
   extent may change. */
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

/* Takes an extent out of the tiling and gives it back. Its neighbours meet: the caller has given one of them its
   units. */
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

/* Makes an extent a block, which a free finds by its address. Its entry stays when the block goes: looks compare what
   they find, which costs less than clearing (sg_region_block_in_table_locked()). */
static inline void block_insert_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    extent_at(region, id)->state = SG_EXTENT_BLOCK;
    region->lookup.block_at[extent_at(region, id)->begin >> region->bucket_shift] = id;
}

/* True if there is an extent `id` (0: there is none) and it has that state. */
static inline bool extent_has_state_locked(const struct sg_region *region, uint32_t id, enum sg_extent_state state)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return id && extent_at(region, id)->state == state;
}

/* True if an extent begins in that bucket. */
static inline bool extent_begins_in_locked(const struct sg_region *region, uint32_t id, uint32_t bucket)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent_at(region, id)->begin >> region->bucket_shift == bucket;
}

#endif
