/* Three parts. Prices: how much a place costs, over all places of a region that can be the cheapest. Claims: a place
   becomes busy, and ends as a block or as it was. Sources: runs of pages that may be cut, chosen by size or simply
   the highest.

   All of them walk extents by their links, and none looks at an index but to find where to begin. So what they cost
   goes with the number of holes and ranges, which growing can afford and an allocation that fits cannot. */
#include "core/space/placement.h"

#include "core/space/coalesce.h"

/* True if a block of the taker may stand over an extent: a hole, or memory that its stream may use. */
static bool is_open_locked(const struct sg_region *region, const struct sg_extent *extent, struct sg_taker taker)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent->state == SG_EXTENT_HOLE ||
           (extent->state == SG_EXTENT_FREE && extent_is_usable_locked(region, extent, taker.slot));
}

/* How many whole pages of [begin, end), which is free, the taker could have elsewhere instead. Those may be unmapped,
   or may keep an alias. */
static uint32_t pages_to_be_had_locked(const struct sg_region *region, uint32_t begin, uint32_t end,
    struct sg_taker taker) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t whole = pages_inside(region, begin, end - begin), first = page_of(region, begin + region->page_units - 1),
             others = 0;
    for (uint32_t page = first; region->owned.ordered && page < first + whole; page++)
        others += !sg_after_complete(region->owned.clocks, region->memory.after[page]) &&
                  !(taker.aliases && sg_region_shareable_locked(region, page, taker.slot));
    return whole - others;
}

/* Prices the place [begin, begin + units), which starts in the open extent `id`. Holes cost new pages. Free memory
   costs the whole pages that would not be free any more. They are counted range by range: all of them, less those
   left on both sides. */
static struct sg_placement price_place_locked(const struct sg_region *region, uint32_t id, uint32_t begin,
    uint32_t units, struct sg_taker taker) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_placement placement = {.begin = begin, .units = units, .extent = id};
    uint32_t end = begin + units;
    /* Extent by extent, as far as each lies under the place. A page of a hole counts whole where the place has a part
       of it. */
    for (; id && extent_at(region, id)->begin < end; id = extent_at(region, id)->next) {
        const struct sg_extent *extent = extent_at(region, id);
        uint32_t from = extent->begin > begin ? extent->begin : begin,
            to = extent_end(extent) < end ? extent_end(extent) : end;
        if (extent->state == SG_EXTENT_HOLE)
            placement.new_pages += page_of(region, to - 1) - page_of(region, from) + 1;
        else /* what it leaves of this range may still hold whole pages */
            placement.whole += pages_to_be_had_locked(region, extent->begin, extent_end(extent), taker) -
                               pages_to_be_had_locked(region, extent->begin, from, taker) -
                               pages_to_be_had_locked(region, to, extent_end(extent), taker);
    }
    return placement;
}

/* The search of one region for the cheapest place. */
struct search {
    uint32_t units;
    bool high, any; /* any: `best` is one */
    enum sg_placement_goal goal;
    struct sg_taker taker;
    uint32_t room, best_room; /* units of the open stretch that is looked at, and of that of the best place */
    struct sg_placement best;
};

/* Takes a place for the best one if it is cheaper, or as cheap and nearer to where blocks should stand. */
static void search_consider(struct search *search, struct sg_placement placement)
{
    uint32_t cost = placement.new_pages, least = search->best.new_pages;
    if (search->goal == SG_FEWEST_PAGES_TOTAL) {
        cost += placement.whole;
        least += search->best.whole;
    }
    /* A block in a short stretch leaves addresses that are of no use to the next, slightly larger block, and so
       are the parts of pages at their ends. */
    bool nearer = search->high                        ? placement.begin > search->best.begin
                  : search->room != search->best_room ? search->room > search->best_room
                                                      : placement.begin < search->best.begin;
    if (!search->any || cost < least || (cost == least && nearer)) {
        search->best = placement;
        search->best_room = search->room;
    }
    search->any = true;
}

/* The open extent at or before `id` that holds `position`. */
static uint32_t back_to_locked(const struct sg_region *region, uint32_t id, uint32_t position) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    while (extent_at(region, id)->begin > position)
        id = extent_at(region, id)->prev;
    return id;
}

/* Tries the places in the open stretch from extent `left` to extent `right` that start where a piece starts, or end
   where one ends. Between those, sliding only adds pages. */
static void try_stretch_locked(const struct sg_region *region, uint32_t left, uint32_t right, struct search *search)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t begin = extent_at(region, left)->begin, end = extent_end(extent_at(region, right)), units = search->units;
    if (end - begin < units)
        return;
    /* Both ends of each free range, and both ends of the stretch: a place that begins anywhere else has no fewer new
       pages than one of these. */
    search->room = end - begin;
    for (uint32_t id = left;; id = extent_at(region, id)->next) {
        const struct sg_extent *extent = extent_at(region, id);
        if ((extent->state == SG_EXTENT_FREE || id == left) && end - extent->begin >= units)
            search_consider(search, price_place_locked(region, id, extent->begin, units, search->taker));
        if ((extent->state == SG_EXTENT_FREE || id == right) && extent_end(extent) - begin >= units) {
            uint32_t from = extent_end(extent) - units;
            search_consider(search,
                price_place_locked(region, back_to_locked(region, id, from), from, units, search->taker));
        }
        if (id == right)
            return;
    }
}

/* Tries the open stretch around extent `id`. Returns where it ends. */
static uint32_t try_around_locked(const struct sg_region *region, uint32_t id, struct search *search) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t left = id, right = id;
    while (extent_at(region, left)->prev &&
           is_open_locked(region, extent_at(region, extent_at(region, left)->prev), search->taker))
        left = extent_at(region, left)->prev;
    while (extent_at(region, right)->next &&
           is_open_locked(region, extent_at(region, extent_at(region, right)->next), search->taker))
        right = extent_at(region, right)->next;
    try_stretch_locked(region, left, right, search);
    return extent_end(extent_at(region, right));
}

bool sg_region_find_placement_locked(const struct sg_region *region, uint32_t units, bool high,
    enum sg_placement_goal goal, struct sg_taker taker, struct sg_placement *ret)
{
    SG_ASSERT_REGION_LOCK(region);
    struct search search = {.units = units, .high = high, .goal = goal, .taker = taker};
    /* A place without a hole needs no new page, and would have been taken as it is. So it is enough to look around
       each hole. The next hole that counts begins behind the stretch around this one. */
    for (uint32_t page = 0;
         page < region->pages && (page = sg_max_tree_first(&region->lookup.hole_tree, page, 1)) != SG_MAX_TREE_NONE;)
        page = page_of(region, try_around_locked(region, region->lookup.hole_at[page], &search) - 1) + 1;
    if (search.any)
        *ret = search.best;
    return search.any;
}

/* Cuts [begin, end) out of the open extent `id` and makes it busy; the rest keeps its state. Two extents must be
   left. */
static uint32_t cut_out_locked(struct sg_region *region, uint32_t id, uint32_t begin, uint32_t end) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id);
    bool is_hole = extent->state == SG_EXTENT_HOLE;
    uint32_t node_end = extent_end(extent);
    if (is_hole)
        hole_remove_locked(region, extent);
    else
        free_remove_locked(region, extent);
    /* The parts on both sides get extents of their own. They keep owner and time, so nothing of what is known about
       them is lost. */
    extent->state = SG_EXTENT_BUSY;
    if (extent->begin < begin) {
        uint32_t left = extent_insert_before_locked(region, id, extent->begin, begin - extent->begin);
        extent_at(region, left)->owner = extent->owner;
        extent_at(region, left)->seq = extent->seq;
        if (is_hole)
            hole_insert_locked(region, left);
        else
            free_put_locked(region, left);
    }
    if (end < node_end) {
        uint32_t right = extent_insert_after_locked(region, id, end, node_end - end);
        extent_at(region, right)->owner = extent->owner;
        extent_at(region, right)->seq = extent->seq;
        if (is_hole)
            hole_insert_locked(region, right);
        else
            free_put_locked(region, right);
    }
    extent->begin = begin;
    extent->size = end - begin;
    return id;
}

uint32_t sg_region_claim_locked(struct sg_region *region, const struct sg_placement *placement)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t id = placement->extent, end = placement->begin + placement->units;
    if (!extents_left_locked(region->extents, EXTENTS_SPARE_OF_CLAIM)) /* so that its end has some, whatever is cut
                                                                   meanwhile */
        return 0;
    /* Each extent under the place is cut to its part of it, and joined to the busy extent that grows from the left. */
    uint32_t busy = 0;
    while (id && extent_at(region, id)->begin < end) {
        struct sg_extent *extent = extent_at(region, id);
        uint32_t next = extent->next;
        uint32_t from = extent->begin > placement->begin ? extent->begin : placement->begin;
        uint32_t to = extent_end(extent) < end ? extent_end(extent) : end;
        if (extent->state == SG_EXTENT_HOLE) { /* whole pages only */
            from = page_of(region, from) * region->page_units;
            to = (page_of(region, to - 1) + 1) * region->page_units;
        }
        uint32_t part = cut_out_locked(region, id, from, to);
        if (busy) {
            extent_at(region, busy)->size += extent_at(region, part)->size;
            extent_unlink_locked(region, part);
        } else {
            busy = part;
        }
        id = next;
    }
    return busy;
}

/* The rest of a new page is called its first user's, so that it joins memory which that one frees. It has the page's
   past: none, but for memory that has another address still. */
static void leave_over_locked(struct sg_region *region, uint32_t id, sg_slot slot) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    extent_at(region, id)->owner = slot;
    extent_at(region, id)->seq = region->memory.after[page_of(region, extent_at(region, id)->begin)].seq;
    region->owned.ordered = region->owned.ordered || slot;
    extent_coalesce_locked(region, id);
}

uint32_t sg_region_commit_locked(struct sg_region *region, uint32_t busy, const struct sg_placement *placement,
    sg_slot slot)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, busy);
    assert(extent->state == SG_EXTENT_BUSY);
    uint32_t begin = extent->begin, end = extent_end(extent), block_end = placement->begin + placement->units;
    extent->begin = placement->begin;
    extent->size = placement->units;
    block_insert_locked(region, busy);
    uint32_t left =
        begin < placement->begin ? extent_insert_before_locked(region, busy, begin, placement->begin - begin) : 0;
    uint32_t right = block_end < end ? extent_insert_after_locked(region, busy, block_end, end - block_end) : 0;
    if (left)
        leave_over_locked(region, left, slot);
    if (right)
        leave_over_locked(region, right, slot);
    return busy;
}

/* Turns an extent that is in no index, and is whole pages, into a hole, joined with neighbouring holes. */
static void become_hole_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id);
    uint32_t prev = extent->prev, next = extent->next;
    if (next && extent_at(region, next)->state == SG_EXTENT_HOLE) {
        hole_remove_locked(region, extent_at(region, next));
        extent->size += extent_at(region, next)->size;
        extent_unlink_locked(region, next);
    }
    if (prev && extent_at(region, prev)->state == SG_EXTENT_HOLE) {
        hole_remove_locked(region, extent_at(region, prev));
        extent_at(region, prev)->size += extent->size;
        extent_unlink_locked(region, id);
        id = prev;
    }
    hole_insert_locked(region, id);
}

/* The state that a page of an abandoned claim gets, by its handle. */
static enum sg_extent_state after_abandon_locked(const struct sg_region *region, uint32_t page) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return region->memory.handle[page] == SG_PAGE_LOST ? SG_EXTENT_BUSY
           : region->memory.handle[page]               ? SG_EXTENT_FREE
                                                       : SG_EXTENT_HOLE;
}

void sg_region_abandon_locked(struct sg_region *region, uint32_t busy, sg_slot slot, uint64_t now)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, busy);
    assert(extent->state == SG_EXTENT_BUSY);
    /* From the low end on, each row of pages that become alike is cut off. The claim left enough extents for that. */
    for (;;) {
        uint32_t begin = extent->begin, end = extent_end(extent), page = page_of(region, begin);
        enum sg_extent_state becomes = after_abandon_locked(region, page);
        uint32_t stop = page + 1;
        while (stop * region->page_units < end && after_abandon_locked(region, stop) == becomes)
            stop++;
        uint32_t cut = stop * region->page_units < end ? stop * region->page_units : end;
        uint32_t rest = cut < end ? extent_insert_after_locked(region, busy, cut, end - cut) : 0;
        if (rest)
            extent_at(region, rest)->state = SG_EXTENT_BUSY;
        extent->size = cut - begin;
        extent->owner = slot;
        extent->seq = slot ? now : 0;
        region->owned.ordered = region->owned.ordered || slot;
        if (becomes == SG_EXTENT_FREE)
            extent_coalesce_locked(region, busy);
        else if (becomes == SG_EXTENT_HOLE)
            become_hole_locked(region, busy);
        if (!rest)
            return;
        busy = rest;
        extent = extent_at(region, busy);
    }
}

/* True if a free page may be taken away from its place for the taker. */
static bool may_cut_locked(const struct sg_region *region, uint32_t page, struct sg_taker taker) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    if (taker.place)
        return region->memory.place[page] == taker.place && sg_region_loose_locked(region, page);
    return taker.aliases ? sg_region_shareable_locked(region, page, taker.slot) : sg_region_movable_locked(region, page);
}

/* Finds the next run of pages that may be cut in a free range, from page *end down: [*begin, *end). False: there is
   none. */
static bool next_run_locked(const struct sg_region *region, const struct sg_extent *extent, struct sg_taker taker,
    uint32_t *begin, uint32_t *end) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t from = page_of(region, extent->begin + region->page_units - 1);
    if (!region->owned.ordered && !region->memory.pinned && !region->memory.far_pages && !taker.aliases &&
        !taker.place) { /* all may be: no need to ask of each */
        *begin = from < *end ? from : *end;
        return from < *end;
    }
    while (*end > from && !may_cut_locked(region, *end - 1, taker))
        --*end;
    *begin = *end;
    while (*begin > from && may_cut_locked(region, *begin - 1, taker))
        --*begin;
    return *end > *begin;
}

/* True if a run of `pages` is a better source of `want` than one of `best`. The smallest that is enough is best,
   else the largest. */
static bool is_better_source(uint32_t pages, uint32_t best, uint32_t want)
{
    return pages >= want ? best < want || pages <= best : best < want && pages >= best;
}

bool sg_region_find_source_locked(const struct sg_region *region, uint32_t want, struct sg_taker taker,
    struct sg_source *best)
{
    SG_ASSERT_REGION_LOCK(region);
    bool found = false;
    /* Only a range of a page and more can have a whole one. Its runs are walked from the high end. */
    for (uint32_t bucket = 0, id; (id = free_next_locked(region, region->page_units, &bucket));) {
        uint32_t begin, end = page_of(region, extent_end(extent_at(region, id)));
        for (; next_run_locked(region, extent_at(region, id), taker, &begin, &end); end = begin) {
            if (is_better_source(end - begin, best->pages, want)) {
                *best = (struct sg_source){.extent = id, .first = begin, .pages = end - begin};
                found = true;
            }
        }
    }
    return found;
}

uint32_t sg_region_cut_source_locked(struct sg_region *region, const struct sg_source *source, uint32_t want,
    uint32_t *ret_first)
{
    SG_ASSERT_REGION_LOCK(region);
    const struct sg_extent *extent = extent_at(region, source->extent);
    uint32_t pages = source->pages < want ? source->pages : want;
    if (!extents_left_locked(region->extents, EXTENTS_SPARE_OF_CUT))
        return 0;
    /* Next to where there is no memory already, so that what stays is in one piece. */
    bool low = extent_has_state_locked(region, extent->prev, SG_EXTENT_HOLE) &&
               !extent_has_state_locked(region, extent->next, SG_EXTENT_HOLE);
    *ret_first = low ? source->first : source->first + source->pages - pages;
    return cut_out_locked(region, source->extent, *ret_first * region->page_units,
        (*ret_first + pages) * region->page_units);
}

uint32_t sg_region_cut_locked(struct sg_region *region, uint32_t want, enum sg_place place, uint32_t *ret_first,
    uint32_t *ret_busy)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t bucket = extents_left_locked(region->extents, EXTENTS_SPARE_OF_CUT) ? region->lookup.free_tree.buckets : 0;
    while ((bucket = sg_max_tree_last(&region->lookup.free_tree, bucket, (int32_t)region->page_units)) !=
           SG_MAX_TREE_NONE) {
        uint32_t id = region->lookup.free_at[bucket], begin, end = page_of(region, extent_end(extent_at(region, id)));
        if (!next_run_locked(region, extent_at(region, id), (struct sg_taker){.place = place}, &begin, &end))
            continue;
        *ret_first = end - begin > want ? end - want : begin;
        *ret_busy = cut_out_locked(region, id, *ret_first * region->page_units, end * region->page_units);
        return end - *ret_first;
    }
    return 0;
}

void sg_region_cut_done_locked(struct sg_region *region, uint32_t busy)
{
    SG_ASSERT_REGION_LOCK(region);
    assert(extent_at(region, busy)->state == SG_EXTENT_BUSY);
    become_hole_locked(region, busy);
}

void sg_region_cut_undone_locked(struct sg_region *region, uint32_t busy)
{
    SG_ASSERT_REGION_LOCK(region);
    assert(extent_at(region, busy)->state == SG_EXTENT_BUSY);
    extent_coalesce_locked(region, busy);
}
