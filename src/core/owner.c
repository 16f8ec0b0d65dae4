/* Regions whose free ranges belong to several streams: what goes beyond one range of one owner. */
#include "region_parts.h"

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
    for (uint32_t slot = 0; (slot = sg_index_first(&region->free_index, slot, 1)) != SG_INDEX_NONE; slot++)
        class_insert(region, region->free_at[slot]);
}

void sg_region_note_after(struct sg_region *region, uint32_t begin, uint32_t size, struct sg_after after)
{
    uint32_t first = page_of(region, begin), last = page_of(region, begin + size - 1);
    region->ordered = true;
    for (uint32_t page = first; page <= last; page++) {
        struct sg_after *known = &region->after[page];
        bool whole = begin <= page * region->page_units && (page + 1) * region->page_units - begin <= size;
        if (whole || sg_after_complete(region->order, *known)) {
            *known = after; /* who came to use all of a page had come after all that it held before */
        } else {
            known->slots |= after.slots;
            known->time = known->time > after.time ? known->time : after.time;
        }
    }
}

bool sg_region_tidy(struct sg_region *region)
{
    if (!region->ordered || region->tidied == region->order->version)
        return false;
    region->tidied = region->order->version;
    if (!has_several_owners(region))
        return false;
    for (uint32_t slot = 0; (slot = sg_index_first(&region->free_index, slot, 1)) != SG_INDEX_NONE; slot++) {
        uint32_t id = region->free_at[slot], prev = at(region, id)->prev, next = at(region, id)->next, owner;
        uint64_t time;
        bool left = has_state(region, prev, SG_NODE_HELD) &&
                    may_join(region, at(region, id), at(region, prev), &owner, &time);
        bool right = (has_state(region, next, SG_NODE_HELD) || has_state(region, next, SG_NODE_FREE)) &&
                     may_join(region, at(region, id), at(region, next), &owner, &time);
        if (left || right) {
            free_remove(region, at(region, id));
            become_free_of_another(region, id);
        }
    }
    return true;
}

/* Free memory that a stream may use, in one piece. */
struct window {
    uint32_t begin, end, node; /* node: the range that holds `begin` */
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

static void extend(struct search *search, uint32_t id, uint32_t begin, uint32_t end)
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
    const struct sg_node *node = at(region, id);
    uint32_t begin = node->begin, end = end_of(node);
    for (uint32_t page = page_of(region, begin); page * region->page_units < end; page++) {
        uint32_t from = page * region->page_units, to = from + region->page_units;
        if (sg_after_usable(region->order, region->after[page], slot))
            extend(search, id, from > begin ? from : begin, to < end ? to : end);
    }
}

static bool find_window(const struct sg_region *region, uint32_t units, sg_slot slot, struct window *ret)
{
    struct search search = {.region = region, .units = units};
    for (uint32_t at_slot = 0; (at_slot = sg_index_first(&region->free_index, at_slot, 1)) != SG_INDEX_NONE;
         at_slot++) {
        uint32_t id = region->free_at[at_slot];
        if (is_usable(region, at(region, id), slot))
            extend(&search, id, at(region, id)->begin, end_of(at(region, id)));
        else
            extend_by_pages(&search, id, slot);
    }
    close_window(&search);
    *ret = search.best;
    return search.best.end != search.best.begin;
}

uint32_t sg_region_take_window(struct sg_region *region, uint32_t units, sg_slot slot)
{
    struct window window;
    if (!region->ordered)
        return 0;
    sg_region_tidy(region);
    if ((uint32_t)sg_index_largest(&region->free_index) * 2 < units && !has_several_owners(region))
        return 0;
    if (!find_window(region, units, slot, &window))
        return 0;
    const struct sg_place place = {.begin = window.begin, .units = units, .node = window.node};
    uint32_t busy = sg_region_claim(region, &place);
    return busy ? sg_region_commit(region, busy, &place, slot) : 0;
}

/* Whether nothing but free ranges is there from `id` up to `end`, the end of a page, and `slot` has come after what was
   done in each. */
static bool may_take_all(const struct sg_region *region, uint32_t id, uint32_t end, sg_slot slot)
{
    bool by_page = sg_after_usable(region->order, region->after[page_of(region, end - 1)], slot);
    for (;; id = at(region, id)->next) { /* behind what is free there are more nodes up to the end of its page */
        if (!has_state(region, id, SG_NODE_FREE) && !has_state(region, id, SG_NODE_HELD))
            return false;
        if (!by_page && !is_usable(region, at(region, id), slot))
            return false;
        if (end_of(at(region, id)) >= end)
            return true;
    }
}

/* The time of `slot` by which it has come after all free ranges from `id` up to `end`. */
static uint64_t time_after_all(const struct sg_region *region, uint32_t id, uint32_t end, sg_slot slot)
{
    uint64_t time = region->order->moved_on[slot];
    for (; id && at(region, id)->begin < end; id = at(region, id)->next)
        time = at(region, id)->time > time ? at(region, id)->time : time;
    return time;
}

/* Whether the page in which the free range `id` ends is free to its end, where others follow, and may have a second
   address for `slot`, which has come after all of them by *ret_time. */
static bool is_border(const struct sg_region *region, uint32_t id, sg_slot slot, uint64_t *ret_time)
{
    uint32_t end = end_of(at(region, id)), page = page_of(region, end);
    uint32_t from = page * region->page_units, to = from + region->page_units;
    if (end == from || at(region, id)->begin > from || region->pin[page] & SG_PIN_ASKED)
        return false;
    if (!may_take_all(region, id, to, slot))
        return false;
    *ret_time = time_after_all(region, id, to, slot);
    return region->order->marked[slot] >= *ret_time || region->order->complete[slot] >= *ret_time;
}

/* The next slot of addresses, from `from` on, of a free range that may begin before a page and end in it: of those that
   begin inside one page only the last can. There may be very many of them, and pages are few. */
static uint32_t next_reaching(const struct sg_region *region, uint32_t from)
{
    uint32_t slot = sg_index_first(&region->free_index, from, 1);
    if (slot == SG_INDEX_NONE)
        return SG_INDEX_NONE;
    const struct sg_node *node = at(region, region->free_at[slot]);
    uint32_t page = page_of(region, node->begin), end = (page + 1) * region->page_units;
    if (node->begin == page * region->page_units || end_of(node) > end)
        return slot;
    return sg_index_last(&region->free_index, end >> region->slot_shift, 1);
}

uint32_t sg_region_border_pages(const struct sg_region *region, sg_slot slot)
{
    uint32_t pages = 0;
    uint64_t time;
    if (!has_several_owners(region))
        return 0;
    for (uint32_t at_slot = 0; (at_slot = next_reaching(region, at_slot)) != SG_INDEX_NONE; at_slot++)
        pages += is_border(region, region->free_at[at_slot], slot, &time);
    return pages;
}

uint32_t sg_region_cut_border(struct sg_region *region, sg_slot slot, uint32_t *from, uint32_t *ret_first)
{
    uint64_t time;
    if (!has_several_owners(region))
        return 0;
    for (; (*from = next_reaching(region, *from)) != SG_INDEX_NONE; ++*from) {
        uint32_t id = region->free_at[*from];
        if (!is_border(region, id, slot, &time))
            continue;
        uint32_t page = page_of(region, end_of(at(region, id)));
        const struct sg_place place = {
            .begin = page * region->page_units, .units = region->page_units, .node = id};
        uint32_t busy = sg_region_claim(region, &place);
        if (!busy)
            return 0;
        at(region, busy)->owner = slot;
        at(region, busy)->time = time;
        region->after[page] = (struct sg_after){sg_slot_bit(slot), time};
        *ret_first = page;
        return busy;
    }
    return 0;
}
