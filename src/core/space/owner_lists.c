/* None of this runs while a region has one owner. The first function makes lists, the second fills them, and from
   then on free_index.h keeps them. The last two are about time: what a page comes after, and which neighbours may
   join now. */
#include "core/space/coalesce.h"

#include "base/meta.h"

struct sg_lists *sg_region_make_lists_locked(struct sg_region *region, uint32_t owner)
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
    /* A page's old entry is dropped where it no longer holds anybody back, so that entries do not grow into all
       slots. */
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
    /* Ranges are looked at in address order. A free range on the left was looked at as the right neighbour of this
       one, so only a fragment there can still be of news. */
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
