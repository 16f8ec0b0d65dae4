/* A region against an array that says of each unit what it is. */
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

static void model_init(struct model *model, uint32_t pages, uint32_t page_units, uint32_t bucket_shift, uint64_t seed)
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

static void model_fini(struct model *model)
{
    sg_region_fini(&model->region);
    sg_extents_fini(&model->extents);
    free(model->unit);
}

static void fill(struct model *model, uint32_t begin, uint32_t units, uint32_t what)
{
    for (uint32_t i = begin; i < begin + units; i++)
        model->unit[i] = what;
}

static uint32_t run_end(const struct model *model, uint32_t begin)
{
    uint32_t end = begin;
    while (end < model->region.units && model->unit[end] == model->unit[begin])
        end++;
    return end;
}

static uint32_t whole_pages(const struct model *model, uint32_t begin, uint32_t end)
{
    uint32_t page = model->region.page_units, from = (begin + page - 1) / page, to = end / page;
    return to > from ? to - from : 0;
}

/* Cached blocks that the region has merged meanwhile are free memory now; which ones is its own affair. */
static void follow_cache(struct model *model)
{
    for (uint32_t i = 0; i < model->blocks; i++) {
        const struct sg_extent *extent = &model->extents.extent[model->block[i].extent];
        if (!model->block[i].cached || (extent->state == SG_EXTENT_DEFERRED && extent->begin == model->block[i].begin))
            continue;
        fill(model, model->block[i].begin, model->block[i].units, FREE);
        model->block[i].live = model->block[i].cached = false;
    }
}

static void flush(struct model *model)
{
    uint32_t cached = model->region.quick.deferred;
    assert_int_equal(sg_region_drain_quick_lists_locked(&model->region), cached > 0);
    assert_int_equal(model->region.quick.deferred, 0);
    follow_cache(model);
}

static void compare(struct model *model)
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
            assert_int_equal(extent->state, cached ? SG_EXTENT_DEFERRED : pending ? SG_EXTENT_PENDING
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

static uint32_t new_block(struct model *model, uint32_t extent, uint32_t begin, uint32_t units)
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
static uint32_t size_class(uint32_t size)
{
    uint32_t high = 31 - (uint32_t)__builtin_clz(size);
    return high * 8 + (high >= 3 ? (size >> (high - 3)) - 8 : 0);
}

/* A range's class among those that a block may be put into; where the low end is wanted, one that could grow comes
   after all others. */
static uint32_t class_among(const struct model *model, uint32_t begin, uint32_t end, enum sg_region_end from)
{
    bool grows = end < model->region.units && model->unit[end] == HOLE;
    return size_class(end - begin) + (from == SG_END_SETTLED && grows ? SG_SIZE_CLASSES : 0);
}

/* Where a block of the regular region may be put: in a range of the smallest class that holds it, at the low end or,
   where that is wanted, at the one which leaves more pages whole. */
static void check_smallest(const struct model *model, uint32_t position, uint32_t units, enum sg_region_end from)
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

static void take(struct model *model, uint32_t units, enum sg_region_end from)
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

static uint32_t cost_at(const struct model *model, uint32_t begin, uint32_t units, enum sg_placement_goal goal,
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
static uint32_t least_cost(const struct model *model, uint32_t units, enum sg_placement_goal goal)
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

static void placement(struct model *model, uint32_t units, bool high, enum sg_placement_goal goal, bool keep)
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

static void release_random(struct model *model)
{
    uint32_t i = (uint32_t)random_below(&model->random, model->blocks + 1);
    if (i == model->blocks || !model->block[i].live || model->block[i].cached)
        return;
    if (!model->block[i].pending && random_below(&model->random, 4) == 0) {
        sg_region_suspend_locked(&model->region, model->block[i].extent);
        model->block[i].pending = true;
        return;
    }
    sg_region_release_locked(&model->region, model->block[i].extent, 0, 0);
    model->block[i].cached = true;
    follow_cache(model);
    if (random_below(&model->random, 4) == 0)
        flush(model);
}

static bool movable(const struct model *model, uint32_t page)
{
    for (uint32_t i = page * model->region.page_units; i < (page + 1) * model->region.page_units; i++)
        if (model->unit[i] != FREE)
            return false;
    return !model->region.memory.pin[page];
}

static void cut(struct model *model)
{
    struct sg_region *region = &model->region;
    uint32_t want = (uint32_t)random_between(&model->random, 1, 4), first, busy;
    flush(model);
    uint32_t highest = region->pages;
    while (highest > 0 && !movable(model, highest - 1))
        highest--;
    uint32_t pages = sg_region_cut_locked(region, want, &first, &busy);
    assert_int_equal(pages > 0, highest > 0);
    if (!pages)
        return;
    assert_true(pages <= want);
    assert_int_equal(first + pages, highest);
    for (uint32_t page = first; page < first + pages; page++)
        assert_true(movable(model, page));
    assert_true(pages == want || first == 0 || !movable(model, first - 1));
    sg_region_check(region);
    if (random_below(&model->random, 3)) {
        for (uint32_t page = first; page < first + pages; page++)
            region->memory.handle[page] = 0;
        region->memory.mapped -= pages;
        sg_region_cut_done_locked(region, busy);
        fill(model, first * region->page_units, pages * region->page_units, HOLE);
    } else {
        sg_region_cut_undone_locked(region, busy);
    }
}

/* What a plan takes pages from: the smallest run of movable pages that is enough, or else the largest, whole or in
   part. */
static void source(struct model *model)
{
    struct sg_region *region = &model->region;
    uint32_t want = (uint32_t)random_between(&model->random, 1, 6), enough = UINT32_MAX, largest = 0, run = 0, first;
    struct sg_source best = {0};
    flush(model);
    for (uint32_t page = 0; page <= region->pages; page++) {
        if (page < region->pages && movable(model, page)) {
            run++;
            continue;
        }
        largest = run > largest ? run : largest;
        enough = run >= want && run < enough ? run : enough;
        run = 0;
    }
    assert_int_equal(sg_region_find_source_locked(region, want, (struct sg_taker){0}, &best), largest > 0);
    assert_int_equal(best.pages, enough < UINT32_MAX ? enough : largest);
    if (!best.pages)
        return;
    uint32_t busy = sg_region_cut_source_locked(region, &best, want, &first),
             pages = best.pages < want ? best.pages : want;
    assert_true(busy && first >= best.first && first + pages <= best.first + best.pages);
    for (uint32_t page = first; page < first + pages; page++)
        assert_true(movable(model, page));
    sg_region_check(region);
    sg_region_cut_undone_locked(region, busy);
}

static void steps(struct model *model, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint32_t most = random_below(&model->random, 8) ? 3 * model->region.page_units / 2
                                                        : 6 * model->region.page_units;
        uint32_t units =
            (uint32_t)random_between(&model->random, model->least, most > model->least ? most : model->least);
        bool high = random_below(&model->random, 3) == 0;
        switch (random_below(&model->random, 8)) {
        case 0:
        case 1:
            take(model, units, high ? SG_END_HIGH : random_below(&model->random, 2) ? SG_END_LOW : SG_END_SETTLED);
            break;
        case 2:
            placement(model, units, high, SG_FEWEST_NEW_PAGES, /* keep */ true);
            break;
        case 3:
            placement(model, units, high, (enum sg_placement_goal)random_below(&model->random, 2),
                random_below(&model->random, 2));
            break;
        case 4:
            cut(model);
            source(model);
            break;
        case 5:
            if (random_below(&model->random, 20) == 0) {
                uint32_t page = (uint32_t)random_below(&model->random, model->region.pages);
                model->region.memory.pinned += model->region.memory.pin[page] ? -1u : 1u;
                model->region.memory.pin[page] ^= 1;
            }
            __attribute__((fallthrough));
        default:
            release_random(model);
        }
        compare(model);
    }
    for (uint32_t i = 0; i < model->blocks; i++) {
        if (!model->block[i].live || model->block[i].cached)
            continue;
        sg_region_release_locked(&model->region, model->block[i].extent, 0, 0);
        model->block[i].cached = true;
        compare(model);
    }
    flush(model);
    memset(model->region.memory.pin, 0, model->region.pages);
    uint32_t first, busy, pages;
    while ((pages = sg_region_cut_locked(&model->region, UINT32_MAX, &first, &busy))) {
        for (uint32_t page = first; page < first + pages; page++)
            model->region.memory.handle[page] = 0;
        sg_region_cut_done_locked(&model->region, busy);
        fill(model, first * model->region.page_units, pages * model->region.page_units, HOLE);
        compare(model);
    }
    assert_int_equal(model->extents.live, 1); /* one hole */
}

static void run(uint32_t pages, uint32_t page_units, uint32_t bucket_shift, unsigned count)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct model *model = malloc(sizeof *model);
        assert_non_null(model);
        model_init(model, pages, page_units, bucket_shift, seed * 1000 + page_units);
        steps(model, count);
        model_fini(model);
        free(model);
    }
}

static void test_small_slots(void **state)
{
    (void)state;
    run(24, 16, 0, 2500);
}

static void test_large_slots(void **state)
{
    (void)state;
    run(40, 16, 3, 2500); /* blocks longer than half a page, as in the regular region */
}

static void test_odd_pages(void **state)
{
    (void)state;
    run(24, 24, 3, 2500); /* not a power of two */
}

static void test_one_page(void **state)
{
    (void)state;
    run(1, 64, 3, 1500);
}

/* How many of `blocks` blocks of one size are still kept once all were freed, beside `others` extents elsewhere. */
static uint32_t kept(uint32_t blocks, uint32_t others)
{
    struct model *model = malloc(sizeof *model);
    assert_non_null(model);
    model_init(model, 8, 16, 0, 1);
    uint32_t extent[128];
    for (uint32_t i = 0; i < blocks; i++) {
        take(model, 1, SG_END_SETTLED);
        if (model->blocks == i)
            placement(model, 1, /* high */ false, SG_FEWEST_NEW_PAGES, /* keep */ true);
        extent[i] = model->block[i].extent;
    }
    model->region.extents->live += others;
    for (uint32_t i = 0; i < blocks; i++)
        sg_region_release_locked(&model->region, extent[i], 0, 0);
    model->region.extents->live -= others;
    uint32_t cached = model->region.quick.deferred;
    model_fini(model);
    free(model);
    return cached;
}

static void test_depth(void **state)
{
    (void)state;
    assert_int_equal(kept(SG_QUICK_DEPTH, 0), SG_QUICK_DEPTH);
    assert_int_equal(kept(SG_QUICK_DEPTH + 1, 0), 1); /* the others were joined */
    assert_int_equal(kept(SG_QUICK_DEPTH + 4, 4 * SG_QUICK_SHARE), SG_QUICK_DEPTH + 4);
    assert_int_equal(kept(SG_QUICK_DEPTH + 5, 4 * SG_QUICK_SHARE), 1);
}

enum { ROW_PAGE = 4096, ROW_PAGES = 24, ROW_MAPPED = 20 };

/* Blocks of so many pages each, one behind the other from the beginning of a region that is mapped to ROW_MAPPED. The
   caller gives it to row_end(). */
static struct model *row_new(const uint32_t *pages, uint32_t count, uint32_t *ret_node)
{
    struct model *model = malloc(sizeof *model);
    assert_non_null(model);
    model_init(model, ROW_PAGES, ROW_PAGE, 11, 1);
    struct sg_region *region = &model->region;
    struct sg_placement placement = {.units = ROW_MAPPED * ROW_PAGE, .extent = region->first, .new_pages = ROW_MAPPED};
    uint32_t busy = sg_region_claim_locked(region, &placement);
    for (uint32_t page = 0; page < ROW_MAPPED; page++)
        region->memory.handle[page] = ++model->handles;
    sg_region_release_locked(region, sg_region_commit_locked(region, busy, &placement, 0), 0, 0);
    sg_region_drain_quick_lists_locked(region);
    for (uint32_t i = 0; i < count; i++)
        ret_node[i] = sg_region_take_locked(region, pages[i] * ROW_PAGE, SG_END_SETTLED, 0);
    return model;
}

static void row_end(struct model *model)
{
    model_fini(model);
    free(model);
}

static void row_free(struct model *model, uint32_t extent)
{
    sg_region_release_locked(&model->region, extent, 0, 0);
    sg_region_drain_quick_lists_locked(&model->region);
}

/* The page at which a block of so many pages is put, which is then free again and kept. */
static uint32_t row_place(struct model *model, uint32_t pages, enum sg_region_end end)
{
    uint32_t extent = sg_region_take_locked(&model->region, pages * ROW_PAGE, end, 0);
    assert_true(extent);
    uint32_t begin = model->extents.extent[extent].begin;
    sg_region_check(&model->region);
    sg_region_release_locked(&model->region, extent, 0, 0);
    return begin / ROW_PAGE;
}

/* While there is room a range that could grow is left to what may need that. */
static void test_range_that_can_grow(void **state)
{
    static const uint32_t pages[] = {1, 9, 1, 6};
    uint32_t extent[4];
    (void)state;
    struct model *model = row_new(pages, 4, extent); /* three pages are left, behind which there is no memory */
    row_free(model, extent[1]);
    assert_int_equal(row_place(model, 2, SG_END_SETTLED), 1);
    sg_region_drain_quick_lists_locked(&model->region);
    assert_int_equal(row_place(model, 2, SG_END_LOW), 17);
    sg_region_drain_quick_lists_locked(&model->region);
    row_free(model, extent[3]);
    /* nine pages just hold it; the other nine could become more */
    assert_int_equal(row_place(model, 9, SG_END_SETTLED), 1);
    row_end(model);
}

/* What is kept is used again only where it would be without being kept. */
static void test_kept_block(void **state)
{
    static const uint32_t pages[] = {1, 3, 1, 2, 5, 1};
    uint32_t extent[6];
    (void)state;
    struct model *model = row_new(pages, 6, extent);
    row_free(model, extent[1]);
    row_free(model, extent[4]);
    sg_region_release_locked(&model->region, extent[3], 0, 0);
    assert_int_equal(row_place(model, 2, SG_END_LOW), 5); /* where moves count */
    /* three pages hold it, which is less than the seven that it would part */
    assert_int_equal(row_place(model, 2, SG_END_SETTLED), 1);
    row_end(model);
    model = row_new(pages, 6, extent);
    row_free(model, extent[4]);
    sg_region_release_locked(&model->region, extent[3], 0, 0);
    assert_int_equal(row_place(model, 2, SG_END_SETTLED), 5); /* nothing else does, but what could grow */
    row_end(model);
}

/* Of ranges of one size it is the lowest, kept or not. */
static void test_kept_block_of_equals(void **state)
{
    static const uint32_t pages[] = {1, 2, 1, 2, 1};
    uint32_t extent[5];
    (void)state;
    struct model *model = row_new(pages, 5, extent);
    row_free(model, extent[1]);
    sg_region_release_locked(&model->region, extent[3], 0, 0);
    assert_int_equal(row_place(model, 2, SG_END_LOW), 4);
    assert_int_equal(row_place(model, 2, SG_END_SETTLED), 1);
    row_end(model);
}

/* Parts of three owners begin in one slot of addresses, of which only the last may be found by it. */
static void test_three_owners_in_a_slot(void **state)
{
    enum { PAGE = 4096, PAGES = 4, SLOT_SHIFT = 11, LEFT = 6600, MIDDLE = 400, ALL = PAGES * PAGE };
    struct model *model = malloc(sizeof *model);
    struct sg_region *region = &model->region;
    static struct sg_stream_clocks clocks;
    (void)state;
    assert_non_null(model);
    model_init(model, PAGES, PAGE, SLOT_SHIFT, 1);
    clocks = (struct sg_stream_clocks){.version = 1};
    region->owned.clocks = &clocks;
    struct sg_placement placement = {.units = ALL, .extent = region->first, .new_pages = PAGES};
    uint32_t busy = sg_region_claim_locked(region, &placement);
    for (uint32_t page = 0; page < PAGES; page++)
        region->memory.handle[page] = ++model->handles;
    sg_region_release_locked(region, sg_region_commit_locked(region, busy, &placement, 0), 2, 5);
    sg_region_drain_quick_lists_locked(region);
    uint32_t left = sg_region_take_locked(region, LEFT, SG_END_SETTLED, 2);
    uint32_t right = sg_region_take_locked(region, ALL - LEFT - MIDDLE, SG_END_HIGH, 2);
    assert_true(left && right);
    sg_region_release_locked(region, left, 1, 6);
    sg_region_release_locked(region, right, 3, 7); /* what is between them is held now */
    sg_region_check(region);
    left = sg_region_take_locked(region, LEFT - MIDDLE, SG_END_SETTLED, 1);
    assert_true(left);
    sg_region_check(region);
    assert_int_equal(sg_region_largest_locked(region), ALL - LEFT - MIDDLE);
    for (sg_slot slot = 0; slot < SG_SLOTS; slot++)
        clocks.complete[slot] = 10;
    clocks.version++;
    assert_true(sg_region_coalesce_completed_locked(region));
    sg_region_check(region);
    assert_int_equal(sg_region_largest_locked(region), ALL - LEFT + MIDDLE);
    sg_region_release_locked(region, left, 0, 0);
    sg_region_drain_quick_lists_locked(region);
    sg_region_check(region);
    assert_int_equal(sg_region_largest_locked(region), ALL);
    model_fini(model);
    free(model);
}

static void test_page_states(void **state)
{
    static const uint32_t pages[] = {2, 1};
    uint32_t extent[2];
    (void)state;
    struct model *model = row_new(pages, 2, extent);
    struct sg_region *region = &model->region;
    uint32_t block = extent[1], last = model->extents.extent[block].begin / ROW_PAGE;
    CUmemGenericAllocationHandle handle = region->memory.handle[last];
    assert_int_equal(sg_region_page_state(region, last, block), SG_PAGE_IS_IN_USE);
    sg_region_suspend_locked(region, block);
    assert_int_equal(sg_region_page_state(region, last, block), SG_PAGE_IS_IN_USE);
    sg_region_release_locked(region, block, 0, 0);
    region->memory.pin[last] = SG_PIN_ALIASED;
    assert_int_equal(sg_region_page_state(region, last, block), SG_PAGE_IS_ALIASED);
    region->memory.pin[last] |= SG_PIN_ASKED;
    assert_int_equal(sg_region_page_state(region, last, block), SG_PAGE_IS_PINNED);
    region->memory.pin[last] = 0;
    region->memory.handle[last] = SG_PAGE_ALIAS;
    assert_int_equal(sg_region_page_state(region, last, block), SG_PAGE_IS_ALIAS);
    region->memory.handle[last] = SG_PAGE_LOST;
    assert_int_equal(sg_region_page_state(region, last, block), SG_PAGE_IS_LOST);
    region->memory.handle[last] = handle;
    sg_region_drain_quick_lists_locked(region);
    uint32_t behind = model->extents.extent[extent[0]].next, hole = model->extents.extent[behind].next;
    assert_int_equal(sg_region_page_state(region, last, behind), SG_PAGE_IS_IDLE);
    assert_int_equal(sg_region_page_state(region, ROW_MAPPED, hole), SG_PAGE_IS_EMPTY);
    row_end(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_states),
        cmocka_unit_test(test_small_slots),
        cmocka_unit_test(test_large_slots),
        cmocka_unit_test(test_odd_pages),
        cmocka_unit_test(test_one_page),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_range_that_can_grow),
        cmocka_unit_test(test_kept_block),
        cmocka_unit_test(test_kept_block_of_equals),
        cmocka_unit_test(test_three_owners_in_a_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
