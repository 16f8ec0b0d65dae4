/* A region in programs written by hand: pages, kept blocks, and three owners of a slot. */
#include "region_model.h"

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

/* A kept block is used again only where it would be without being kept. */
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

/* Among ranges of one size the lowest is taken, kept or not. */
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
        cmocka_unit_test(test_range_that_can_grow),
        cmocka_unit_test(test_kept_block),
        cmocka_unit_test(test_kept_block_of_equals),
        cmocka_unit_test(test_three_owners_in_a_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
