/* Free parts of a page that belong to several streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check.h"
#include "rooms.h"

enum { PAGE = 4096, PAGES = 3, SLOT_SHIFT = 7, PART = 1000, ONE = 1, OTHER = 2, TAKER = 3, NOBODY = 4 };

static struct sg_extents extents;
static struct sg_region region;
static struct sg_stream_clocks clocks;

/* The first page and a part of the next were freed by ONE at 6, all behind that by OTHER at 5. TAKER has come after both
   at 8. */
static int start(void **state)
{
    (void)state;
    clocks = (struct sg_stream_clocks){.version = 1, .alive = 1 << ONE | 1 << OTHER | 1 << TAKER};
    assert_true(sg_extents_init(&extents));
    uint64_t page_bytes = (uint64_t)PAGE << SG_UNIT_SHIFT;
    assert_true(sg_region_init_locked(&region, &extents, 0x7f0000000000, PAGES * page_bytes, page_bytes, SLOT_SHIFT));
    region.owned.clocks = &clocks;
    const struct sg_placement placement = {.units = PAGES * PAGE, .extent = region.first, .new_pages = PAGES};
    uint32_t busy = sg_region_claim_locked(&region, &placement);
    for (uint32_t page = 0; page < PAGES; page++)
        region.memory.handle[page] = page + 1;
    sg_region_release_locked(&region, sg_region_commit_locked(&region, busy, &placement, 0), OTHER, 5);
    sg_region_drain_quick_lists_locked(&region);
    uint32_t left = sg_region_take_locked(&region, PAGE + PART, SG_END_SETTLED, OTHER);
    assert_true(left);
    sg_region_release_locked(&region, left, ONE, 6);
    sg_region_drain_quick_lists_locked(&region);
    sg_region_check(&region);
    clocks.ordered_after[TAKER].at[ONE] = clocks.ordered_after[TAKER].at[OTHER] = clocks.unchanged_since[TAKER] = 8;
    clocks.fenced[TAKER] = 8;
    return 0;
}

static int end(void **state)
{
    (void)state;
    sg_region_fini(&region);
    sg_extents_fini(&extents);
    return 0;
}

/* What is left of ONE's range begins in the slot of addresses in which OTHER's begins, which it can't join yet. */
static void is_held_beside_anothers_in_its_slot(void **state)
{
    enum { SLOT = 1 << SLOT_SHIFT, LEFT = PAGE + PART - (PAGE + PART) / SLOT * SLOT - 1 };
    (void)state;
    uint32_t block = sg_region_take_locked(&region, PAGE + PART - LEFT, SG_END_SETTLED, ONE);
    assert_true(block);
    uint32_t left = extents.extent[block].next;
    assert_int_equal(extents.extent[left].state, SG_EXTENT_FRAGMENT);
    assert_int_equal(extents.extent[left].size, LEFT);
    sg_region_check(&region);
    sg_region_release_locked(&region, block, ONE, 7);
    sg_region_drain_quick_lists_locked(&region);
    sg_region_check(&region);
    assert_true(sg_region_take_locked(&region, PAGE + PART, SG_END_SETTLED, ONE));
}

/* What is abandoned was to be a stream's: a region in which nothing has had an owner tells of that from then on. */
static void is_told_of_an_abandoned_place(void **state)
{
    static struct sg_region dirty;
    const uint64_t page_bytes = (uint64_t)PAGE << SG_UNIT_SHIFT;
    (void)state;
    assert_true(sg_region_init_locked(&dirty, &extents, 0x7e0000000000, page_bytes, page_bytes, SLOT_SHIFT));
    dirty.owned.clocks = &clocks;
    for (sg_slot slot = 0; slot <= ONE; slot++) {
        const struct sg_placement placement = {.units = PAGE, .extent = dirty.first, .new_pages = 1};
        sg_region_abandon_locked(&dirty, sg_region_claim_locked(&dirty, &placement), slot, 7);
        assert_int_equal(dirty.owned.ordered, slot != 0);
        assert_true(sg_region_is_hole_locked(&dirty));
    }
    sg_region_fini(&dirty);
}

/* What lies highest is OTHER's. */
static void high_end_is_unusable_before_it_is_ordered(void **state)
{
    (void)state;
    uint32_t id = sg_region_take_locked(&region, PART, SG_END_HIGH, ONE);
    assert_true(id);
    assert_in_range(extents.extent[id].begin, 0, PAGE);
    assert_int_equal(sg_region_take_locked(&region, PART, SG_END_HIGH, NOBODY), 0);
}

/* Blocks side by side that one stream frees: what they become one with is free after the last of them, in whatever
   order they come together. */
static void joined_ranges_are_free_after_the_last_of_them(void **state)
{
    static const uint8_t order_of[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    clocks.ordered_after[TAKER].at[OTHER] = 4; /* none of OTHER's will do */
    for (int frees = 0; frees < 6; frees++) {
        for (int last = 0; last < 3; last++) {
            uint32_t block[4];
            for (int i = 0; i < 4; i++) /* the fourth stays between them and the rest */
                block[i] = sg_region_take_locked(&region, PART, SG_END_SETTLED, ONE);
            for (int i = 0; i < 3; i++)
                assert_int_equal(extents.extent[block[i]].begin + PART, extents.extent[block[i + 1]].begin);
            for (int i = 0; i < 3; i++) {
                uint32_t which = order_of[frees][i];
                sg_region_release_locked(&region, block[which], ONE, (int)which == last ? 9 : 6);
                sg_region_drain_quick_lists_locked(&region);
            }
            clocks.ordered_after[TAKER].at[ONE] = 8;
            assert_int_equal(sg_region_take_locked(&region, 3 * PART, SG_END_SETTLED, TAKER), 0);
            clocks.ordered_after[TAKER].at[ONE] = 9;
            uint32_t all = sg_region_take_locked(&region, 3 * PART, SG_END_SETTLED, TAKER);
            assert_true(all);
            (void)end(state);
            (void)start(state);
            clocks.ordered_after[TAKER].at[OTHER] = 4;
        }
    }
}

/* A place whose pages were not to be had: what was free there is its taker's, for whom it was found. */
static void abandoned_place_is_its_takers(void **state)
{
    (void)state;
    const struct sg_placement placement = {.begin = 0, .units = PAGE, .extent = region.first};
    uint32_t busy = sg_region_claim_locked(&region, &placement);
    assert_true(busy);
    sg_region_abandon_locked(&region, busy, TAKER, 9);
    clocks.ordered_after[NOBODY].at[ONE] = clocks.ordered_after[NOBODY].at[OTHER] = 9;
    clocks.ordered_after[NOBODY].at[TAKER] = 8;
    assert_int_equal(sg_region_take_locked(&region, PAGE, SG_END_SETTLED, 0), 0);
    uint32_t behind = sg_region_take_locked(&region, PAGE, SG_END_SETTLED, NOBODY);
    assert_true(behind);
    assert_in_range(extents.extent[behind].begin, PAGE, PAGES * PAGE);
    clocks.ordered_after[NOBODY].at[TAKER] = 9;
    uint32_t id = sg_region_take_locked(&region, PAGE, SG_END_SETTLED, NOBODY);
    assert_true(id);
    assert_int_equal(extents.extent[id].begin, 0);
}

static void nothing_is_taken_without_nodes(void **state)
{
    uint32_t live = extents.live;
    (void)state;
    extents.live = extents.capacity - 1000;
    assert_int_equal(sg_region_take_window_locked(&region, 2 * PAGE, TAKER), 0);
    sg_region_check(&region);
    extents.live = live;
    assert_true(sg_region_take_window_locked(&region, 2 * PAGE, TAKER));
    sg_region_check(&region);
}

/* More ranges in a row than are looked at belong to another stream: what lies beyond them is found by its size. */
static void ranges_of_others_in_a_row(void **state)
{
    enum { SMALL = 256, PIECES = 40 };
    uint32_t piece[PIECES], count = 0;
    (void)state;
    clocks.ordered_after[ONE].at[OTHER] = clocks.ordered_after[OTHER].at[ONE] = UINT64_MAX;
    while (count < PIECES && (piece[count] = sg_region_take_locked(&region, SMALL, SG_END_SETTLED, OTHER)) != 0)
        count++;
    assert_true(count > 30);
    for (uint32_t i = 0; i < count; i += 2)
        sg_region_release_locked(&region, piece[i], OTHER, 7);
    sg_region_drain_quick_lists_locked(&region);
    assert_int_equal(sg_region_take_locked(&region, SMALL, SG_END_HIGH, NOBODY), 0);
    clocks.complete[OTHER] = clocks.complete[ONE] = 10;
    clocks.version++;
    assert_true(sg_region_take_locked(&region, SMALL, SG_END_HIGH, NOBODY));
    sg_region_check(&region);
}

/* The same among small blocks, of which only the other stream has freed any. */
static void small_ranges_of_another_in_a_row(void **state)
{
    enum { PIECES = 40 };
    static struct sg_region small;
    uint32_t piece[PIECES];
    (void)state;
    uint64_t page_bytes = (uint64_t)PAGE << SG_UNIT_SHIFT;
    assert_true(sg_region_init_locked(&small, &extents, 0x7e0000000000, page_bytes, page_bytes, 0));
    small.owned.clocks = &clocks;
    const struct sg_placement placement = {.units = PAGE, .extent = small.first, .new_pages = 1};
    uint32_t busy = sg_region_claim_locked(&small, &placement);
    small.memory.handle[0] = 1;
    sg_region_release_locked(&small, sg_region_commit_locked(&small, busy, &placement, OTHER), OTHER, 5);
    sg_region_drain_quick_lists_locked(&small);
    for (int i = 0; i < PIECES; i++)
        assert_true(piece[i] = sg_region_take_locked(&small, 2, SG_END_SETTLED, OTHER));
    for (int i = 0; i < PIECES; i += 2)
        sg_region_release_locked(&small, piece[i], OTHER, 7);
    sg_region_drain_quick_lists_locked(&small);
    assert_int_equal(sg_region_take_locked(&small, 2, SG_END_SETTLED, NOBODY), 0);
    assert_true(sg_region_take_locked(&small, 2, SG_END_SETTLED, OTHER));
    sg_region_check(&small);
    sg_region_fini(&small);
}

/* Blocks that are kept whole have a list for each size and eighth slot. What one stream of such freed is not the
   other's. */
static void kept_blocks_of_streams_eight_slots_apart(void **state)
{
    enum { UNITS = 10, EIGHTH = ONE + SG_QUICK_OWNERS };
    static struct sg_region small;
    (void)state;
    uint64_t page_bytes = (uint64_t)PAGE << SG_UNIT_SHIFT;
    assert_true(sg_region_init_locked(&small, &extents, 0x7e0000000000, page_bytes, page_bytes, 0));
    small.owned.clocks = &clocks;
    const struct sg_placement placement = {.units = 2 * UNITS, .extent = small.first, .new_pages = 1};
    uint32_t busy = sg_region_claim_locked(&small, &placement);
    small.memory.handle[0] = 1;
    sg_region_release_locked(&small, sg_region_commit_locked(&small, busy, &placement, ONE), ONE, 5);
    sg_region_drain_quick_lists_locked(&small);
    uint32_t own = sg_region_take_locked(&small, UNITS, SG_END_SETTLED, ONE),
             others = sg_region_take_locked(&small, UNITS, SG_END_SETTLED, ONE);
    assert_true(own && others);
    sg_region_release_locked(&small, own, ONE, 6);
    sg_region_release_locked(&small, others, EIGHTH, 7);
    assert_int_equal(sg_region_take_locked(&small, UNITS, SG_END_SETTLED, EIGHTH), others);
    sg_region_release_locked(&small, others, EIGHTH, 8);
    uint32_t id = sg_region_take_locked(&small, UNITS, SG_END_SETTLED, ONE);
    assert_int_not_equal(id, others);
    sg_region_check(&small);
    sg_region_fini(&small);
}

/* A block ends in the first unit of the second page. Work of others on that page is not complete, and none is left on the
   third, which alone is wholly free. */
static void a_page_that_is_used_in_part_is_none_that_could_move(void **state)
{
    static struct sg_region other;
    const uint64_t page_bytes = (uint64_t)PAGE << SG_UNIT_SHIFT;
    (void)state;
    assert_true(sg_region_init_locked(&other, &extents, 0x7e0000000000, PAGES * page_bytes, page_bytes, SLOT_SHIFT));
    other.owned.clocks = &clocks;
    const struct sg_placement placement = {.units = PAGES * PAGE, .extent = other.first, .new_pages = PAGES};
    uint32_t busy = sg_region_claim_locked(&other, &placement);
    for (uint32_t page = 0; page < PAGES; page++)
        other.memory.handle[page] = page + 1;
    sg_region_release_locked(&other, sg_region_commit_locked(&other, busy, &placement, OTHER), OTHER, 5);
    sg_region_drain_quick_lists_locked(&other);
    uint32_t block = sg_region_take_locked(&other, PAGE + 1, SG_END_SETTLED, OTHER);
    assert_int_equal(extents.extent[block].begin, 0);
    other.memory.after[2] = (struct sg_after){0};
    assert_int_equal(other.lookup.whole_free, 1);
    assert_int_equal(sg_region_idle_locked(&other), 1);
    other.memory.after[2] = other.memory.after[1];
    assert_int_equal(sg_region_idle_locked(&other), 0);
    sg_region_fini(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(high_end_is_unusable_before_it_is_ordered, start, end),
        cmocka_unit_test_setup_teardown(joined_ranges_are_free_after_the_last_of_them, start, end),
        cmocka_unit_test_setup_teardown(abandoned_place_is_its_takers, start, end),
        cmocka_unit_test_setup_teardown(is_held_beside_anothers_in_its_slot, start, end),
        cmocka_unit_test_setup_teardown(is_told_of_an_abandoned_place, start, end),
        cmocka_unit_test_setup_teardown(nothing_is_taken_without_nodes, start, end),
        cmocka_unit_test_setup_teardown(ranges_of_others_in_a_row, start, end),
        cmocka_unit_test_setup_teardown(small_ranges_of_another_in_a_row, start, end),
        cmocka_unit_test_setup_teardown(kept_blocks_of_streams_eight_slots_apart, start, end),
        cmocka_unit_test_setup_teardown(a_page_that_is_used_in_part_is_none_that_could_move, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
