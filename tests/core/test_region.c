/* A region against a model that has a word for each unit, in random programs. */
#include "region_model.h"

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
    uint32_t pages = sg_region_cut_locked(region, want, false, &first, &busy);
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
    while ((pages = sg_region_cut_locked(&model->region, UINT32_MAX, false, &first, &busy))) {
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

static void quick_lists_keep_their_depth(void **state)
{
    (void)state;
    assert_int_equal(kept(SG_QUICK_DEPTH, 0), SG_QUICK_DEPTH);
    assert_int_equal(kept(SG_QUICK_DEPTH + 1, 0), 1); /* the others were joined */
    assert_int_equal(kept(SG_QUICK_DEPTH + 4, 4 * SG_QUICK_SHARE), SG_QUICK_DEPTH + 4);
    assert_int_equal(kept(SG_QUICK_DEPTH + 5, 4 * SG_QUICK_SHARE), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_slots),
        cmocka_unit_test(test_large_slots),
        cmocka_unit_test(test_odd_pages),
        cmocka_unit_test(test_one_page),
        cmocka_unit_test(quick_lists_keep_their_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
