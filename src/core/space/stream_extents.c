/* Regions whose free ranges belong to several streams: what goes beyond one range of one owner. */
#include "space/extents.h"

#include "meta.h"

struct sg_lists *sg_region_make_lists(struct sg_region *region, uint32_t owner)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_lists *lists = sg_meta_map(sizeof *lists);
    region->owned.lists[owner] = lists;
    if (!lists)
        region->owned.listless |= UINT64_C(1) << owner;
    return lists ? lists : &region->owned.common;
}

void sg_region_make_listed_locked(struct sg_region *region)
{
    SG_ASSERT_REGION_LOCK(region);
    region->owned.listed = true;
    for (uint32_t bucket = 0, id; (id = free_next_locked(region, 1, &bucket));)
        size_class_insert_locked(region, id);
}

void sg_region_note_after_locked(struct sg_region *region, uint32_t begin, uint32_t size, struct sg_after after)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t first = page_of(region, begin), last = page_of(region, begin + size - 1);
    region->owned.ordered = true;
    for (uint32_t page = first; page <= last; page++) {
        struct sg_after *known = &region->memory.after[page];
        bool whole = begin <= page * region->page_units && (page + 1) * region->page_units - begin <= size;
        if (whole || sg_after_complete(region->owned.clocks, *known)) {
            *known = after; /* a user of the whole page is already ordered after its earlier work */
        } else {
            known->slots |= after.slots;
            known->seq = known->seq > after.seq ? known->seq : after.seq;
        }
    }
}

bool sg_region_coalesce_completed_locked(struct sg_region *region)
{
    SG_ASSERT_REGION_LOCK(region);
    if (!region->owned.ordered || region->owned.coalesced_version == region->owned.clocks->version)
        return false;
    region->owned.coalesced_version = region->owned.clocks->version;
    if (!region_has_several_owners_locked(region))
        return false;
    for (uint32_t bucket = 0, id; (id = free_next_locked(region, 1, &bucket));) {
        uint32_t prev = extent_at(region, id)->prev, next = extent_at(region, id)->next, owner;
        uint64_t seq;
        bool left = extent_has_state_locked(region, prev, SG_EXTENT_FRAGMENT) &&
                    extents_may_join_locked(region, extent_at(region, id), extent_at(region, prev), &owner, &seq);
        bool right = (extent_has_state_locked(region, next, SG_EXTENT_FRAGMENT) ||
                         extent_has_state_locked(region, next, SG_EXTENT_FREE)) &&
                     extents_may_join_locked(region, extent_at(region, id), extent_at(region, next), &owner, &seq);
        if (left || right) {
            free_remove_locked(region, extent_at(region, id));
            extent_coalesce_mixed_locked(region, id);
        }
    }
    return true;
}

/* Free memory that a stream may use, in one piece. */
struct window {
    uint32_t begin, end, extent; /* extent: the range that holds `begin` */
};

struct search {
    const struct sg_region *region;
    uint32_t units;
    struct window now, best;
};

static void close_window(struct search *search)
{
    const struct window *now = &search->now, *best = &search->best;
    uint32_t length = now->end - now->begin, least = best->end - best->begin;
    if (length >= search->units && (!least || length < least))
        search->best = *now;
    search->now = (struct window){0};
}

static void search_extend(struct search *search, uint32_t id, uint32_t begin, uint32_t end)
{
    if (search->now.end != begin || search->now.begin == search->now.end) {
        close_window(search);
        search->now = (struct window){begin, begin, id};
    }
    search->now.end = end;
}

/* What a stream can't use as a whole it may use by pages, which know better how old they are. */
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
    if ((uint32_t)sg_max_tree_largest(&region->lookup.free_tree) * 2 < units &&
        !region_has_several_owners_locked(region))
        return 0;
    if (!find_window_locked(region, units, slot, &window))
        return 0;
    const struct sg_placement placement = {.begin = window.begin, .units = units, .extent = window.extent};
    uint32_t busy = sg_region_claim_locked(region, &placement);
    return busy ? sg_region_commit_locked(region, busy, &placement, slot) : 0;
}
