#include "core/space/window.h"

#include "core/space/coalesce.h"
#include "core/space/placement.h"

/* Free memory that a stream may use, in one piece, in units. */
struct window {
    uint32_t begin, end, extent; /* extent: the range that holds `begin` */
};

struct search {
    const struct sg_region *region;
    uint32_t units;
    struct window now, best;
};

/* Ends the window that is being made: it is the best so far if it is long enough and shorter than the others. */
static void close_window(struct search *search)
{
    const struct window *now = &search->now, *best = &search->best;
    uint32_t length = now->end - now->begin, least = best->end - best->begin;
    if (length >= search->units && (!least || length < least))
        search->best = *now;
    search->now = (struct window){0};
}

/* Adds [begin, end) of extent `id`. It goes on with the present window where it touches that, else it begins a new
   one. */
static void search_extend(struct search *search, uint32_t id, uint32_t begin, uint32_t end)
{
    if (search->now.end != begin || search->now.begin == search->now.end) {
        close_window(search);
        search->now = (struct window){begin, begin, id};
    }
    search->now.end = end;
}

/* Adds those pages of a range that the stream may use, although it may not use the whole. The range has the latest
   time of all that was joined to it; some of its pages are older. */
static void extend_by_pages(struct search *search, uint32_t id, sg_slot slot)
{
    const struct sg_region *region = search->region;
    const struct sg_extent *extent = extent_at(region, id);
    uint32_t begin = extent->begin, end = extent_end(extent);
    for (uint32_t page = page_of(region, begin); page * region->page_units < end; page++) {
        uint32_t from = page * region->page_units, to = from + region->page_units;
        if (sg_after_usable(region->owned.clocks, region->memory.after[page], slot))
            search_extend(search, id, from > begin ? from : begin, to < end ? to : end);
    }
}

/* Walks all free ranges of a region for the shortest window that holds `units`. */
static bool find_window_locked(const struct sg_region *region, uint32_t units, sg_slot slot, struct window *ret)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct search search = {.region = region, .units = units};
    for (uint32_t bucket = 0, id; (id = free_next_locked(region, 1, &bucket));) {
        if (extent_is_usable_locked(region, extent_at(region, id), slot))
            search_extend(&search, id, extent_at(region, id)->begin, extent_end(extent_at(region, id)));
        else
            extend_by_pages(&search, id, slot);
    }
    close_window(&search);
    *ret = search.best;
    return search.best.end != search.best.begin;
}

uint32_t sg_region_take_window_locked(struct sg_region *region, uint32_t units, sg_slot slot)
{
    SG_ASSERT_REGION_LOCK(region);
    struct window window;
    if (!region->owned.ordered)
        return 0;
    sg_region_coalesce_completed_locked(region);
    /* Free ranges of one owner never touch, so no window is longer than the longest of them: the walk is spared. */
    if ((uint32_t)sg_max_tree_largest(&region->lookup.free_tree) * 2 < units &&
        !region_has_several_owners_locked(region))
        return 0;
    if (!find_window_locked(region, units, slot, &window))
        return 0;
    const struct sg_placement placement = {.begin = window.begin, .units = units, .extent = window.extent};
    uint32_t busy = sg_region_claim_locked(region, &placement);
    return busy ? sg_region_commit_locked(region, busy, &placement, slot) : 0;
}
