/* A model of a region with a word for each unit, and what a region is held to by it. */
#ifndef REGION_MODEL_H
#define REGION_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "random.h"
#include "rooms.h"

enum { FREE = 1, HOLE = 2, BUSY = 3, FIRST_BLOCK = 4 }; /* FIRST_BLOCK + i: block i of the model */
enum { BLOCKS_MOST = 2000 };

struct model {
    struct sg_extents extents;
    struct sg_region region;
    struct random random;
    uint32_t *unit;
    struct {
        uint32_t extent, begin, units;
        bool live, pending, cached;
    } block[BLOCKS_MOST];
    uint32_t blocks, least; /* smallest block */
    uint64_t handles;
};

static inline void model_init(struct model *model, uint32_t pages, uint32_t page_units, uint32_t bucket_shift,
    uint64_t seed)
{
    memset(model, 0, sizeof *model);
    model->random.state = seed;
    model->least = bucket_shift ? (UINT32_C(1) << bucket_shift) + 1 : 1;
    assert_true(sg_extents_init(&model->extents));
    uint64_t page_bytes = (uint64_t)page_units << SG_UNIT_SHIFT;
    assert_true(sg_region_init_locked(&model->region, &model->extents, 0x7f0000000000, pages * page_bytes, page_bytes,
        bucket_shift));
    model->unit = calloc(model->region.units, sizeof *model->unit);
    assert_non_null(model->unit);
    for (uint32_t i = 0; i < model->region.units; i++)
        model->unit[i] = HOLE;
}

static inline void model_fini(struct model *model)
{
    sg_region_fini(&model->region);
    sg_extents_fini(&model->extents);
    free(model->unit);
}

static inline void fill(struct model *model, uint32_t begin, uint32_t units, uint32_t what)
{
    for (uint32_t i = begin; i < begin + units; i++)
        model->unit[i] = what;
}

static inline uint32_t run_end(const struct model *model, uint32_t begin)
{
    uint32_t end = begin;
    while (end < model->region.units && model->unit[end] == model->unit[begin])
        end++;
    return end;
}

static inline uint32_t whole_pages(const struct model *model, uint32_t begin, uint32_t end)
{
    uint32_t page = model->region.page_units, from = (begin + page - 1) / page, to = end / page;
    return to > from ? to - from : 0;
}

/* Cached blocks that the region has merged meanwhile are free memory now; which ones is its own affair. */
static inline void follow_cache(struct model *model)
{
    for (uint32_t i = 0; i < model->blocks; i++) {
        const struct sg_extent *extent = &model->extents.extent[model->block[i].extent];
        if (!model->block[i].cached || (extent->state == SG_EXTENT_DEFERRED && extent->begin == model->block[i].begin))
            continue;
        fill(model, model->block[i].begin, model->block[i].units, FREE);
        model->block[i].live = model->block[i].cached = false;
    }
}

static inline void flush(struct model *model)
{
    uint32_t cached = model->region.quick.deferred;
    assert_int_equal(sg_region_drain_quick_lists_locked(&model->region), cached > 0);
    assert_int_equal(model->region.quick.deferred, 0);
    follow_cache(model);
}

static inline void compare(struct model *model)
{
    follow_cache(model);
    const struct sg_region *region = &model->region;
    const struct sg_extent *extent = NULL;
    uint32_t id = region->first, whole = 0, whole_deferred = 0, largest = 0;
    sg_region_check(region);
    for (uint32_t begin = 0, end; begin < region->units; begin = end, id = extent->next) {
        end = run_end(model, begin);
        uint32_t what = model->unit[begin];
        assert_true(id != 0);
        extent = &model->extents.extent[id];
        assert_int_equal(extent->begin, begin);
        assert_int_equal(extent->size, end - begin);
        if (what == FREE) {
            assert_int_equal(extent->state, SG_EXTENT_FREE);
            whole += whole_pages(model, begin, end);
            largest = end - begin > largest ? end - begin : largest;
        } else if (what == HOLE) {
            assert_int_equal(extent->state, SG_EXTENT_HOLE);
            assert_int_equal(sg_max_tree_get(&region->lookup.hole_tree, begin / region->page_units),
                (end - begin) / region->page_units);
        } else {
            bool cached = model->block[what - FIRST_BLOCK].cached,
                 pending = model->block[what - FIRST_BLOCK].pending || cached;
            assert_int_equal(extent->state, cached    ? SG_EXTENT_DEFERRED
                                            : pending ? SG_EXTENT_PENDING
                                                      : SG_EXTENT_BLOCK);
            whole_deferred += cached ? whole_pages(model, begin, end) : 0;
            largest = cached && end - begin > largest ? end - begin : largest;
            assert_int_equal(model->block[what - FIRST_BLOCK].extent, id);
            assert_int_equal(sg_region_block_at_locked(region, begin, 0), pending ? 0 : id);
            assert_int_equal(sg_region_block_around_locked(region, begin + (end - begin) / 2), pending ? 0 : id);
            if (end - begin > 1)
                assert_int_equal(sg_region_block_at_locked(region, begin + 1, 0), 0);
        }
        if (what == FREE || what == HOLE)
            assert_int_equal(sg_region_block_around_locked(region, begin), 0);
    }
    assert_int_equal(id, 0);
    assert_int_equal(region->lookup.whole_free, whole);
    assert_int_equal(region->quick.whole_deferred, whole_deferred);
    assert_int_equal(sg_region_largest_locked(region), largest);
}

static inline uint32_t new_block(struct model *model, uint32_t extent, uint32_t begin, uint32_t units)
{
    uint32_t i = 0;
    while (i < model->blocks && model->block[i].live)
        i++;
    assert_true(i < BLOCKS_MOST);
    model->blocks = i == model->blocks ? i + 1 : model->blocks;
    model->block[i].extent = extent;
    model->block[i].begin = begin;
    model->block[i].units = units;
    model->block[i].live = true;
    model->block[i].pending = model->block[i].cached = false;
    fill(model, begin, units, FIRST_BLOCK + i);
    return i;
}

/* Eight classes to a power of two, as region.h says. */
static inline uint32_t size_class(uint32_t size)
{
    uint32_t high = 31 - (uint32_t)__builtin_clz(size);
    return high * 8 + (high >= 3 ? (size >> (high - 3)) - 8 : 0);
}

/* A range's class among those that a block may be put into. Where the low end is wanted, a range that could grow comes
   last. */
static inline uint32_t class_among(const struct model *model, uint32_t begin, uint32_t end, enum sg_region_end from)
{
    bool grows = end < model->region.units && model->unit[end] == HOLE;
    return size_class(end - begin) + (from == SG_END_SETTLED && grows ? SG_SIZE_CLASSES : 0);
}

/* A block of the regular region is put in a range of the smallest class that holds it. It lies at the low end, or at
   the one that leaves more pages whole where that is wanted. */
static inline void check_smallest(const struct model *model, uint32_t position, uint32_t units, enum sg_region_end from)
{
    uint32_t least = UINT32_MAX, chosen = UINT32_MAX;
    for (uint32_t begin = 0, end; begin < model->region.units; begin = end) {
        end = run_end(model, begin);
        if (model->unit[begin] != FREE || end - begin < units)
            continue;
        if (class_among(model, begin, end, from) < least)
            least = class_among(model, begin, end, from);
        if (position < begin || position >= end)
            continue;
        chosen = class_among(model, begin, end, from);
        assert_int_equal(position, begin);
    }
    assert_int_equal(chosen, least);
}

static inline void take(struct model *model, uint32_t units, enum sg_region_end from)
{
    bool high = from == SG_END_HIGH;
    uint32_t want = UINT32_MAX;
    if (model->region.fit == SG_FIT_SMALLEST && model->region.quick.deferred &&
        model->region.quick.list[0].units != units)
        flush(model); /* what such a region keeps it keeps for the very next request */
    for (uint32_t begin = 0, end; begin < model->region.units; begin = end) {
        end = run_end(model, begin);
        if (model->unit[begin] == FREE && end - begin >= units && (high || want == UINT32_MAX))
            want = high ? end - units : begin;
    }
    uint32_t extent = sg_region_take_locked(&model->region, units, from, 0);
    for (uint32_t i = 0; i < model->blocks; i++) {
        if (extent && model->block[i].cached && model->block[i].extent == extent) {
            assert_int_equal(model->block[i].units, units);
            model->block[i].cached = false;
            model->block[i].pending = false;
            return;
        }
    }
    assert_int_equal(extent != 0, want != UINT32_MAX);
    if (extent && !high && model->region.fit == SG_FIT_SMALLEST)
        check_smallest(model, want = model->extents.extent[extent].begin, units, from);
    if (extent) {
        assert_int_equal(model->extents.extent[extent].begin, want);
        new_block(model, extent, want, units);
    }
}

static inline uint32_t cost_at(const struct model *model, uint32_t begin, uint32_t units, enum sg_placement_goal goal,
    uint32_t *ret_new, uint32_t *ret_whole)
{
    uint32_t new_pages = 0, whole = 0, page_units = model->region.page_units, last = UINT32_MAX;
    for (uint32_t i = begin; i < begin + units; i++) {
        if (model->unit[i] == HOLE && i / page_units != last) {
            last = i / page_units;
            new_pages++;
        }
    }
    for (uint32_t from = 0, to; from < model->region.units; from = to) {
        to = run_end(model, from);
        if (model->unit[from] != FREE || to <= begin || from >= begin + units)
            continue;
        uint32_t left = begin > from ? whole_pages(model, from, begin) : 0;
        uint32_t right = begin + units < to ? whole_pages(model, begin + units, to) : 0;
        whole += whole_pages(model, from, to) - left - right;
    }
    *ret_new = new_pages;
    *ret_whole = whole;
    return goal == SG_FEWEST_NEW_PAGES ? new_pages : new_pages + whole;
}

/* The least cost of any place that needs a new page, by trying every one. UINT32_MAX: there is none. */
static inline uint32_t least_cost(const struct model *model, uint32_t units, enum sg_placement_goal goal)
{
    uint32_t least = UINT32_MAX, open = 0;
    for (uint32_t end = 1; end <= model->region.units; end++) {
        uint32_t what = model->unit[end - 1], new_pages, whole;
        open = what == FREE || what == HOLE ? open + 1 : 0;
        if (open < units)
            continue;
        uint32_t cost = cost_at(model, end - units, units, goal, &new_pages, &whole);
        if (new_pages && cost < least)
            least = cost;
    }
    return least;
}

static inline void placement(struct model *model, uint32_t units, bool high, enum sg_placement_goal goal, bool keep)
{
    struct sg_region *region = &model->region;
    struct sg_placement placement;
    flush(model);
    if (sg_region_largest_locked(region) >= units) /* is taken without a place */
        return;
    uint32_t least = least_cost(model, units, goal), new_pages, whole;
    bool found = sg_region_find_placement_locked(region, units, high, goal, (struct sg_taker){0}, &placement);
    assert_int_equal(found, least != UINT32_MAX);
    if (!found)
        return;
    assert_int_equal(placement.units, units);
    uint32_t cost = cost_at(model, placement.begin, units, goal, &new_pages, &whole);
    assert_int_equal(placement.new_pages, new_pages);
    assert_int_equal(placement.whole, whole);
    assert_int_equal(cost, least);
    uint32_t busy = sg_region_claim_locked(region, &placement);
    assert_true(busy != 0);
    const struct sg_extent *extent = &model->extents.extent[busy];
    assert_int_equal(extent->state, SG_EXTENT_BUSY);
    assert_true(extent->begin <= placement.begin && extent->begin + extent->size >= placement.begin + units);
    sg_region_check(region);
    uint32_t begin = extent->begin, end = begin + extent->size;
    if (!keep) {
        sg_region_abandon_locked(region, busy, 0, 0);
        compare(model);
        return;
    }
    for (uint32_t page = begin / region->page_units; page <= (end - 1) / region->page_units; page++)
        if (!region->memory.handle[page])
            region->memory.handle[page] = ++model->handles;
    region->memory.mapped += new_pages;
    for (uint32_t i = begin; i < end; i++)
        if (model->unit[i] == HOLE)
            model->unit[i] = FREE;
    uint32_t block = sg_region_commit_locked(region, busy, &placement, 0);
    new_block(model, block, placement.begin, units);
    compare(model);
}

enum { ROW_PAGE = 4096, ROW_PAGES = 24, ROW_MAPPED = 20 };

/* The page at which a block of so many pages is put, which is then free again and kept. */
static inline uint32_t row_place(struct model *model, uint32_t pages, enum sg_region_end end)
{
    uint32_t extent = sg_region_take_locked(&model->region, pages * ROW_PAGE, end, 0);
    assert_true(extent);
    uint32_t begin = model->extents.extent[extent].begin;
    sg_region_check(&model->region);
    sg_region_release_locked(&model->region, extent, 0, 0);
    return begin / ROW_PAGE;
}

#endif
