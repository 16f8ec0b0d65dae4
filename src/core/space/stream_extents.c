/* Regions whose free ranges belong to several streams: what goes beyond one range of one owner. */
#include "space/extents.h"

#include "meta.h"

struct sg_lists *sg_region_make_lists(struct sg_region *region, uint32_t owner)
{
    struct sg_lists *lists = sg_meta_map(sizeof *lists);
    region->lists[owner] = lists;
    if (!lists)
        region->listless |= UINT64_C(1) << owner;
    return lists ? lists : &region->common;
}

void sg_region_make_listed(struct sg_region *region)
{
    region->listed = true;
    for (uint32_t bucket = 0; (bucket = sg_max_tree_first(&region->free_tree, bucket, 1)) != SG_MAX_TREE_NONE; bucket++)
        size_class_insert(region, region->free_at[bucket]);
}

void sg_region_note_after(struct sg_region *region, uint32_t begin, uint32_t size, struct sg_after after)
{
    uint32_t first = page_of(region, begin), last = page_of(region, begin + size - 1);
    region->ordered = true;
    for (uint32_t page = first; page <= last; page++) {
        struct sg_after *known = &region->after[page];
        bool whole = begin <= page * region->page_units && (page + 1) * region->page_units - begin <= size;
        if (whole || sg_after_complete(region->clocks, *known)) {
            *known = after; /* a user of the whole page is already ordered after its earlier work */
        } else {
            known->slots |= after.slots;
            known->seq = known->seq > after.seq ? known->seq : after.seq;
        }
    }
}

bool sg_region_coalesce_completed(struct sg_region *region)
{
    if (!region->ordered || region->coalesced_version == region->clocks->version)
        return false;
    region->coalesced_version = region->clocks->version;
    if (!has_several_owners(region))
        return false;
    for (uint32_t bucket =
        0; (bucket = sg_max_tree_first(&region->free_tree, bucket, 1)) != SG_MAX_TREE_NONE; bucket++) {
        uint32_t id = region->free_at[bucket], prev = at(region, id)->prev, next = at(region, id)->next, owner;
        uint64_t seq;
        bool left = has_state(region, prev, SG_EXTENT_FRAGMENT) &&
                    extents_may_join(region, at(region, id), at(region, prev), &owner, &seq);
        bool right = (has_state(region, next, SG_EXTENT_FRAGMENT) || has_state(region, next, SG_EXTENT_FREE)) &&
                     extents_may_join(region, at(region, id), at(region, next), &owner, &seq);
        if (left || right) {
            free_remove(region, at(region, id));
            extent_coalesce_mixed(region, id);
        }
    }
    return true;
}
