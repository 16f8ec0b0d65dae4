/* One walk over a region's extents for each change. Waking goes over them three times: busy neighbours are joined, paused
   blocks become live, and what is busy becomes free or a hole. The last comes by the end of an abandoned claim, which
   does just that, page by page. */
#include "core/space/paused.h"

#include "core/space/free_index.h"
#include "core/space/placement.h"

void sg_region_pause_locked(struct sg_region *region)
{
    SG_ASSERT_REGION_LOCK(region);
    (void)sg_region_drain_quick_lists_locked(region);
    region->quick.best_deferred = 0;
    for (uint32_t id = region->first; id; id = extent_at(region, id)->next) {
        struct sg_extent *extent = extent_at(region, id);
        assert(extent->state != SG_EXTENT_PENDING && extent->state != SG_EXTENT_DEFERRED);
        if (extent->state == SG_EXTENT_FREE)
            free_remove_locked(region, extent);
        if (extent->state == SG_EXTENT_FREE || extent->state == SG_EXTENT_FRAGMENT)
            extent->state = SG_EXTENT_BUSY;
        else if (extent->state == SG_EXTENT_BLOCK)
            extent->state = SG_EXTENT_PAUSED;
    }
}

/* True if an extent is busy because the region is paused. A lost page's is busy for good. */
static bool is_paused_free_locked(const struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent_has_state_locked(region, id, SG_EXTENT_BUSY) &&
           region->memory.handle[page_of(region, extent_at(region, id)->begin)] != SG_PAGE_LOST;
}

bool sg_region_can_wake_locked(const struct sg_region *region)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t busy = 0;
    for (uint32_t id = region->first; id; id = extent_at(region, id)->next)
        busy += is_paused_free_locked(region, id);
    return extents_left_locked(region->extents, 2 * busy);
}

/* Joins busy neighbours, so that a page without a paused block is part of one extent. */
static void join_busy_locked(struct sg_region *region) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    for (uint32_t id = region->first; id; id = extent_at(region, id)->next) {
        if (!is_paused_free_locked(region, id))
            continue;
        for (uint32_t next; (next = extent_at(region, id)->next) && is_paused_free_locked(region, next);) {
            extent_at(region, id)->size += extent_at(region, next)->size;
            extent_unlink_locked(region, next);
        }
    }
}

void sg_region_wake_locked(struct sg_region *region)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t busy = 0;
    join_busy_locked(region);
    /* Pages that have come back have handles by now. The others are without a paused block, and end as holes. */
    for (uint32_t page = 0; page < region->pages; page++)
        if (region->memory.handle[page] == SG_PAGE_PAUSED)
            region->memory.handle[page] = 0;
    /* All are found first: what becomes free joins its neighbours, and a walk over them would lose its place. */
    for (uint32_t id = region->first; id; id = extent_at(region, id)->next) {
        if (extent_at(region, id)->state == SG_EXTENT_PAUSED) {
            block_insert_locked(region, id);
        } else if (is_paused_free_locked(region, id)) {
            extent_at(region, id)->later = busy;
            busy = id;
        }
    }
    /* With no owner and time 0: the pause has waited for all work that was on them. */
    for (uint32_t id = busy, later; id; id = later) {
        later = extent_at(region, id)->later;
        sg_region_abandon_locked(region, id, 0, 0);
    }
}

/* True if an entry of block_at names a paused block that begins in that bucket. */
static bool is_paused_locked(const struct sg_region *region, uint32_t id, uint32_t bucket) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent_has_state_locked(region, id, SG_EXTENT_PAUSED) && extent_at(region, id)->region == region->index &&
           extent_begins_in_locked(region, id, bucket);
}

uint32_t sg_region_paused_at_locked(const struct sg_region *region, uint32_t position)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t id = sg_region_paused_around_locked(region, position);
    return id && extent_at(region, id)->begin == position ? id : 0;
}

uint32_t sg_region_paused_around_locked(const struct sg_region *region, uint32_t position)
{
    SG_ASSERT_REGION_LOCK(region);
    for (uint32_t bucket = position >> region->bucket_shift; position < region->units; bucket--) {
        uint32_t id = region->lookup.block_at[bucket];
        if (is_paused_locked(region, id, bucket) && extent_at(region, id)->begin <= position)
            return position < extent_end(extent_at(region, id)) ? id : 0;
        if (bucket == 0)
            break;
    }
    return 0;
}

void sg_region_release_paused_locked(struct sg_region *region, uint32_t block)
{
    SG_ASSERT_REGION_LOCK(region);
    assert(extent_at(region, block)->state == SG_EXTENT_PAUSED);
    extent_at(region, block)->state = SG_EXTENT_BUSY;
}

uint32_t sg_region_paused_page_locked(const struct sg_region *region, uint32_t page, uint32_t *id)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t begin = page * region->page_units;
    for (; *id; *id = extent_at(region, *id)->next) {
        const struct sg_extent *extent = extent_at(region, *id);
        if (extent->state != SG_EXTENT_PAUSED || extent_end(extent) <= begin)
            continue;
        return extent->begin > begin ? page_of(region, extent->begin) : page;
    }
    return region->pages;
}

uint32_t sg_region_next_paused_locked(const struct sg_region *region, uint32_t id)
{
    SG_ASSERT_REGION_LOCK(region);
    while (id && extent_at(region, id)->state != SG_EXTENT_PAUSED)
        id = extent_at(region, id)->next;
    return id;
}
