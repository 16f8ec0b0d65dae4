#include "check.h"

#include <stdio.h>
#include <stdlib.h>

#include "rooms.h"

#define CHECK_FILE "core/check/check_region.c"
#include "check_parts.h"

static const char *index_level(const struct sg_max_tree *index, uint32_t level, uint32_t bucket, uint32_t *left)
{
    int32_t largest = 0;
    uint32_t from = bucket * SG_MAX_TREE_FANOUT;
    for (uint32_t i = from; i < from + SG_MAX_TREE_FANOUT; i++) {
        int32_t value = index->level[level][i];
        MUST(value >= 0);
        largest = value > largest ? value : largest;
        if (value && level)
            PASS(index_level(index, level - 1, i, left));
        if (value && !level) {
            MUST(*left > 0);
            --*left;
        }
    }
    MUST(level + 1 == index->levels || index->level[level + 1][bucket] == largest);
    return NULL;
}

/* An index whose maxima are up to date has `entries` of them, each no more and no less than what lies below it. */
static const char *index_broken(const struct sg_max_tree *index, uint32_t entries)
{
    if (index->behind && index->behind->from != UINT32_MAX)
        return NULL;
    uint32_t top = index->levels - 1;
    for (uint32_t bucket = 0; bucket < index->width[top] / SG_MAX_TREE_FANOUT; bucket++)
        PASS(index_level(index, top, bucket, &entries));
    MUST(entries == 0);
    return NULL;
}

/* The slots themselves, also those that no maximum leads to. */
static const char *index_table_broken(const struct sg_max_tree *index, uint32_t entries)
{
    uint32_t found = 0;
    for (uint32_t bucket = 0; bucket < index->buckets; bucket++)
        found += index->level[0][bucket] != 0;
    MUST(found == entries);
    return NULL;
}

struct counts {
    uint32_t free, holes, cached, whole, whole_deferred;
    uint32_t page[SG_PAGE_STATES]; /* of each state but holes */
};

static const char *free_broken(const struct sg_region *region, uint32_t id)
{
    const struct sg_extent *extent = extent_at(region, id);
    uint32_t bucket = extent->begin >> region->bucket_shift;
    MUST(free_in_bucket_locked(region, bucket) == id && region->lookup.free_at[bucket] == id);
    MUST(sg_max_tree_get(&region->lookup.free_tree, bucket) == (int32_t)extent->size);
    MUST(extent->owner < SG_SLOTS && region->owned.owners >> extent->owner & 1);
    MUST(extent->owner == 0 || region->owned.ordered);
    return NULL;
}

/* An extent beside the one before it. */
static const char *neighbours_broken(const struct sg_region *region, uint32_t prev, uint32_t id)
{
    const struct sg_extent *left = extent_at(region, prev), *extent = extent_at(region, id);
    if (left->state != extent->state)
        return NULL;
    MUST(extent->state != SG_EXTENT_HOLE);
    MUST(extent->state != SG_EXTENT_FREE || left->owner != extent->owner);
    /* at most one free range begins in a bucket */
    MUST(extent->state != SG_EXTENT_FREE ||
        left->begin >> region->bucket_shift != extent->begin >> region->bucket_shift);
    return NULL;
}

/* A hole begins and ends with a page, and is in the tables by its first. */
static const char *hole_broken(const struct sg_region *region, uint32_t id)
{
    const struct sg_extent *extent = extent_at(region, id);
    uint32_t first = page_of(region, extent->begin), last = page_of(region, extent->begin + extent->size - 1);
    MUST(extent->begin % region->page_units == 0 && extent->size % region->page_units == 0);
    MUST(region->lookup.hole_at[first] == id);
    MUST(sg_max_tree_get(&region->lookup.hole_tree, first) == (int32_t)page_of(region, extent->size));
    MUST(region->memory.handle[first] == 0 && region->memory.handle[last] == 0);
    return NULL;
}

static const char *node_broken(const struct sg_region *region, uint32_t id, struct counts *counts,
    struct sg_check_sums *sums)
{
    const struct sg_extent *extent = extent_at(region, id);
    uint64_t bytes = (uint64_t)extent->size << SG_UNIT_SHIFT;
    uint32_t bucket = extent->begin >> region->bucket_shift, whole = pages_inside(region, extent->begin, extent->size);
    MUST(extent->region == region->index);
    switch (extent->state) {
    case SG_EXTENT_FREE:
        PASS(free_broken(region, id));
        counts->free++;
        counts->whole += whole;
        break;
    case SG_EXTENT_BLOCK:
        MUST(region->lookup.block_at[bucket] == id);
        MUST(extent->requested <= bytes);
        sums->unasked += extent->requested == 0;
        sums->blocks++;
        sums->requested += extent->requested;
        sums->allocated += bytes;
        break;
    case SG_EXTENT_PENDING:
        sums->pendings++;
        sums->pending += bytes;
        break;
    case SG_EXTENT_HOLE:
        PASS(hole_broken(region, id));
        counts->holes++;
        break;
    case SG_EXTENT_DEFERRED:
        counts->cached++;
        counts->whole_deferred += whole;
        break;
    case SG_EXTENT_BUSY:
        sums->busy++;
        break;
    case SG_EXTENT_FRAGMENT:
        break;
    case SG_EXTENT_PAUSED:
        MUST(region->lookup.block_at[bucket] == id);
        MUST(extent->requested <= bytes && extent->requested > 0);
        sums->paused_blocks++;
        sums->paused += bytes;
        break;
    default:
        return "core/check/check_region.c: a node of a region is in no state";
    }
    sums->extents++;
    return NULL;
}

/* Whether all extents over a page, of which `id` is the first, are busy. */
static bool is_all_busy(const struct sg_region *region, uint32_t page, uint32_t id)
{
    uint32_t end = (page + 1) * region->page_units;
    while (id && extent_at(region, id)->begin < end && extent_at(region, id)->state == SG_EXTENT_BUSY)
        id = extent_at(region, id)->next;
    return !id || extent_at(region, id)->begin >= end;
}

/* Whether all extents over a page, of which `id` is the first, are paused or busy. */
static bool is_all_paused(const struct sg_region *region, uint32_t page, uint32_t id)
{
    bool all = true;
    for (uint32_t end = (page + 1) * region->page_units; all && id && extent_at(region, id)->begin < end;
         id = extent_at(region, id)->next)
        all = extent_at(region, id)->state == SG_EXTENT_PAUSED || extent_at(region, id)->state == SG_EXTENT_BUSY;
    return all;
}

/* Whether all of a page is free memory. */
static bool is_all_free(const struct sg_region *region, uint32_t page, uint32_t id)
{
    for (uint32_t end = (page + 1) * region->page_units; id && extent_at(region, id)->begin < end;
         id = extent_at(region, id)->next)
        if (extent_at(region, id)->state != SG_EXTENT_FREE && extent_at(region, id)->state != SG_EXTENT_FRAGMENT &&
            extent_at(region, id)->state != SG_EXTENT_DEFERRED)
            return false;
    return true;
}

enum sg_page_state sg_region_page_state(const struct sg_region *region, uint32_t page, uint32_t id)
{
    CUmemGenericAllocationHandle handle = region->memory.handle[page];
    if (handle == SG_PAGE_PAUSED)
        return SG_PAGE_IS_PAUSED;
    if (!sg_page_is_there(handle))
        return handle == SG_PAGE_LOST ? SG_PAGE_IS_LOST : handle ? SG_PAGE_IS_ALIAS : SG_PAGE_IS_EMPTY;
    if (region->memory.pin[page])
        return region->memory.pin[page] & SG_PIN_ASKED ? SG_PAGE_IS_PINNED : SG_PAGE_IS_ALIASED;
    return is_all_free(region, page, id) ? SG_PAGE_IS_IDLE : SG_PAGE_IS_IN_USE;
}

/* The pages [first, end), which the extent `id` is the first to touch. It is no hole. */
static const char *pages_broken(const struct sg_region *region, uint32_t id, uint32_t first, uint32_t end,
    struct counts *counts, struct sg_check_sums *sums)
{
    for (uint32_t page = first; page < end; page++) {
        enum sg_page_state state = sg_region_page_state(region, page, id);
        MUST(sg_page_is_there(region->memory.handle[page]) || is_all_busy(region, page, id) ||
             (state == SG_PAGE_IS_PAUSED && is_all_paused(region, page, id)));
        counts->page[state]++;
        sums->pinned_pages += region->memory.pin[page] && state != SG_PAGE_IS_ALIAS;
        sums->pins_twice += region->memory.pin[page] / SG_PIN_ALIASED;
        sums->asked += region->memory.pin[page] & SG_PIN_ASKED;
    }
    return NULL;
}

/* Pages with memory of their own. */
static uint32_t mapped_of(const struct counts *counts)
{
    return counts->page[SG_PAGE_IS_IN_USE] + counts->page[SG_PAGE_IS_IDLE] + counts->page[SG_PAGE_IS_PINNED] +
           counts->page[SG_PAGE_IS_ALIASED];
}

static const char *bins_broken(const struct sg_region *region, const struct counts *counts)
{
    uint32_t cached = 0;
    for (uint32_t word = 0; word < SG_QUICK_LISTS / 64; word++) {
        for (uint64_t used = region->quick.used[word]; used; used &= used - 1) {
            const struct sg_quick_list *quick_list = &region->quick.list[word * 64 + (uint32_t)__builtin_ctzll(used)];
            uint32_t id = quick_list->top;
            for (uint32_t left = quick_list->count; left; left--, id = extent_at(region, id)->later) {
                MUST(id && extent_at(region, id)->state == SG_EXTENT_DEFERRED &&
                     extent_at(region, id)->region == region->index);
                MUST(extent_at(region, id)->size == quick_list->units &&
                     extent_at(region, id)->owner == quick_list->owner);
                cached++;
                MUST(cached <= counts->cached);
            }
        }
    }
    MUST(cached == counts->cached && cached == region->quick.deferred);
    MUST(region->quick.whole_deferred == counts->whole_deferred);
    return NULL;
}

static const char *list_broken(const struct sg_region *region, const struct sg_lists *lists, uint32_t owner,
    uint32_t class, uint32_t *left)
{
    uint32_t less = 0;
    MUST(((lists->any[class / 64] >> class % 64 & 1) != 0) == (lists->first[class] != 0));
    for (uint32_t id = lists->first[class]; id; less = id, id = extent_at(region, id)->in_size_class.more) {
        const struct sg_extent *extent = extent_at(region, id);
        MUST(extent->state == SG_EXTENT_FREE && extent->region == region->index);
        MUST(size_class_of(extent->size) == class && extent->in_size_class.less == less);
        MUST(extent->owner == owner || (lists == &region->owned.common && region->owned.listless >> extent->owner & 1));
        MUST(*left > 0);
        --*left;
    }
    return NULL;
}

static const char *lists_broken(const struct sg_region *region, uint32_t entries)
{
    if (!region->owned.listed)
        return NULL;
    for (uint32_t owner = 0; owner < SG_SLOTS; owner++) {
        const struct sg_lists *lists = owner ? region->owned.lists[owner] : &region->owned.common;
        if (!lists)
            continue;
        MUST(((region->owned.stocked >> owner & 1) != 0) == !lists_empty(lists));
        for (uint32_t word = 0; word < SG_SIZE_CLASSES / 64; word++)
            for (uint64_t any = lists->any[word]; any; any &= any - 1)
                PASS(list_broken(region, lists, owner, word * 64 + (uint32_t)__builtin_ctzll(any), &entries));
    }
    MUST(entries == 0);
    return NULL;
}

/* Of the tables each entry, also where there is no memory. */
static const char *tables_broken(const struct sg_region *region, enum sg_check_depth depth,
    const struct counts *counts)
{
    uint32_t mapped = 0, old = 0;
    for (uint32_t page = 0; page < region->pages; page++) {
        CUmemGenericAllocationHandle handle = region->memory.handle[page];
        mapped += sg_page_is_there(handle);
        old += handle == SG_PAGE_ALIAS;
    }
    MUST(mapped == mapped_of(counts) && old == counts->page[SG_PAGE_IS_ALIAS]);
    if (depth >= SG_CHECK_BUCKETS)
        PASS(index_table_broken(&region->lookup.free_tree, counts->free));
    PASS(index_table_broken(&region->lookup.hole_tree, counts->holes));
    for (uint32_t owner = 0; owner < SG_SLOTS; owner++)
        for (uint32_t class = 0; region->owned.listed && region->owned.lists[owner] && class < SG_SIZE_CLASSES; class ++)
            MUST(!region->owned.lists[owner]->first[class] ||
                 region->owned.lists[owner]->any[class / 64] >> class % 64 & 1);
    for (uint32_t class = 0; region->owned.listed && class < SG_SIZE_CLASSES; class ++)
        MUST(!region->owned.common.first[class] || region->owned.common.any[class / 64] >> class % 64 & 1);
    for (uint32_t quick_list = 0; quick_list < SG_QUICK_LISTS; quick_list++)
        MUST(!region->quick.list[quick_list].count || region->quick.used[quick_list / 64] >> quick_list % 64 & 1);
    return NULL;
}

const char *sg_region_broken(const struct sg_region *region, enum sg_check_depth depth, struct sg_check_sums *sums)
{
    struct counts counts = {0};
    uint32_t position = 0, prev = 0, page = 0;
    MUST(region->units == (uint64_t)region->pages * region->page_units && region->pages > 0);
    for (uint32_t id = region->first; id; prev = id, id = extent_at(region, id)->next) {
        const struct sg_extent *extent = extent_at(region, id);
        MUST(extent->begin == position && extent->size > 0 && extent->size <= region->units - position);
        MUST(extent->prev == prev);
        PASS(node_broken(region, id, &counts, sums));
        if (prev)
            PASS(neighbours_broken(region, prev, id));
        position += extent->size;
        uint32_t end = page_of(region, position + region->page_units - 1);
        if (extent->state != SG_EXTENT_HOLE)
            PASS(pages_broken(region, id, page, end, &counts, sums));
        page = end > page ? end : page;
    }
    MUST(position == region->units);
    MUST(counts.whole == region->lookup.whole_free);
    PASS(bins_broken(region, &counts));
    PASS(lists_broken(region, counts.free));
    PASS(index_broken(&region->lookup.free_tree, counts.free));
    PASS(index_broken(&region->lookup.hole_tree, counts.holes));
    uint64_t page_bytes = sg_region_page_bytes(region);
    MUST(counts.whole + counts.whole_deferred <=
         counts.page[SG_PAGE_IS_IDLE] + counts.page[SG_PAGE_IS_PINNED] + counts.page[SG_PAGE_IS_ALIASED]);
    sums->mapped += mapped_of(&counts) * page_bytes;
    sums->pages += mapped_of(&counts);
    sums->old += counts.page[SG_PAGE_IS_ALIAS] * page_bytes;
    sums->old_pages += counts.page[SG_PAGE_IS_ALIAS];
    sums->lost += counts.page[SG_PAGE_IS_LOST];
    sums->empty += counts.page[SG_PAGE_IS_EMPTY];
    sums->whole += (region->lookup.whole_free + region->quick.whole_deferred) * page_bytes;
    return depth >= SG_CHECK_TABLES ? tables_broken(region, depth, &counts) : NULL;
}

void sg_region_check(const struct sg_region *region)
{
    struct sg_check_sums sums = {0};
    const char *broken = sg_region_broken(region, SG_CHECK_EXTENTS, &sums);
    if (!broken)
        return;
    fprintf(stderr, "%s\n", broken);
    abort();
}
