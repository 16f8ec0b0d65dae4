/* Nodes: of regions so small that little is said of them, of one region in another's table, and too few of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check.h"
#include "rooms.h"
#include "inspect.h"
#include "strict_kept.h"

#define MIB(n) ((uint64_t)(n) << 20)

/* A region so small that its index has one level. */
static void region_of_few_units(void **state)
{
    (void)state;
    static struct sg_extents extents;
    static struct sg_region region;
    enum { UNITS = 8 };
    uint32_t block[UNITS];
    assert_true(sg_extents_init(&extents));
    assert_true(
        sg_region_init_locked(&region, &extents, 0x7f0000000000, UNITS << SG_UNIT_SHIFT, UNITS << SG_UNIT_SHIFT, 0));
    const struct sg_placement placement = {.units = UNITS, .extent = region.first, .new_pages = 1};
    uint32_t busy = sg_region_claim_locked(&region, &placement);
    region.memory.handle[0] = 1;
    sg_region_release_locked(&region, sg_region_commit_locked(&region, busy, &placement, 0), 0, 0);
    for (int turn = 0; turn < 2; turn++) {
        sg_region_drain_quick_lists_locked(&region);
        for (int i = 0; i < UNITS; i++)
            assert_true(block[i] = sg_region_take_locked(&region, 1, SG_END_SETTLED, 0));
        assert_int_equal(sg_region_take_locked(&region, 1, SG_END_SETTLED, 0), 0);
        for (int i = 0; i < UNITS; i++)
            sg_region_release_locked(&region, block[i], 0, 0);
        sg_region_check(&region);
    }
    sg_region_fini(&region);
    sg_extents_fini(&extents);
}

/* The region of the smallest blocks has the cells: whatever begins at a place has the place's node. */
static void blocks_have_the_nodes_of_their_places(void **state)
{
    (void)state;
    static struct sg_extents extents;
    static struct sg_region region;
    enum { UNITS = 4096 };
    const uint64_t bytes = (uint64_t)UNITS << SG_UNIT_SHIFT;
    assert_true(sg_extents_init(&extents));
    assert_true(sg_region_init_locked(&region, &extents, 0x7f0000000000, bytes, bytes, 0));
    const struct sg_placement placement = {.units = UNITS, .extent = region.first, .new_pages = 1};
    uint32_t busy = sg_region_claim_locked(&region, &placement);
    region.memory.handle[0] = 1;
    sg_region_release_locked(&region, sg_region_commit_locked(&region, busy, &placement, 0), 0, 0);
    sg_region_drain_quick_lists_locked(&region);
    for (uint32_t begin = 0; begin < UNITS; begin += 2 << SG_CELL_SHIFT) {
        uint32_t block = sg_region_take_locked(&region, 2 << SG_CELL_SHIFT, SG_END_SETTLED, 0);
        assert_int_equal(extents.extent[block].begin, begin);
        assert_int_equal(block, extents.capacity + (begin >> SG_CELL_SHIFT));
    }
    sg_region_fini(&region);
    sg_extents_fini(&extents);
}

/* A table names a node for a place that is another region's by now, and stands there at the same position. */
static void node_of_another_region(void **state)
{
    (void)state;
    static struct sg_extents extents;
    static struct sg_region region[2];
    enum { PAGE = 4096, SLOT_SHIFT = 7, PART = 1024, PARTS = PAGE / PART };
    uint32_t block[PARTS], found = 0;
    assert_true(sg_extents_init(&extents));
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t bytes = (uint64_t)PAGE << SG_UNIT_SHIFT;
        assert_true(
            sg_region_init_locked(&region[i], &extents, 0x7f0000000000 + i * 2 * bytes, bytes, bytes, SLOT_SHIFT));
        region[i].index = i;
        extents.extent[region[i].first].region = i;
        const struct sg_placement placement = {.units = PAGE, .extent = region[i].first, .new_pages = 1};
        uint32_t busy = sg_region_claim_locked(&region[i], &placement);
        region[i].memory.handle[0] = 1;
        sg_region_release_locked(&region[i], sg_region_commit_locked(&region[i], busy, &placement, 0), 0, 0);
        sg_region_drain_quick_lists_locked(&region[i]);
    }
    for (int i = 0; i < PARTS; i++)
        assert_true(block[i] = sg_region_take_locked(&region[0], PART, SG_END_SETTLED, 0));
    for (int i = PARTS - 1; i >= 0; i--)
        sg_region_release_locked(&region[0], block[i], 0, 0);
    sg_region_drain_quick_lists_locked(&region[0]);
    for (int i = 0; i < PARTS; i++) {
        assert_true(sg_region_take_locked(&region[1], PART, SG_END_SETTLED, 0));
        for (uint32_t position = 0; position < PAGE; position += PART) {
            uint32_t likely = sg_region_expect_free(&region[0], position);
            const struct sg_extent *extent = &extents.extent[likely];
            found += likely && extent->state == SG_EXTENT_BLOCK && extent->region == 1 && extent->begin == position;
            assert_int_equal(sg_region_block_at_locked(&region[0], position, likely), 0);
        }
    }
    assert_true(found > 0);
    for (int i = 0; i < 2; i++)
        sg_region_fini(&region[i]);
    sg_extents_fini(&extents);
}

/* The beginning of a region is a hole, but not all of it. */
static void hole_is_not_all_of_a_region(void **state)
{
    (void)state;
    static struct sg_extents extents;
    static struct sg_region region;
    enum { PAGE = 4096, PAGES = 4 };
    assert_true(sg_extents_init(&extents));
    assert_true(sg_region_init_locked(&region, &extents, 0x7f0000000000, (uint64_t)PAGES * PAGE << SG_UNIT_SHIFT,
        (uint64_t)PAGE << SG_UNIT_SHIFT, 7));
    assert_true(sg_region_is_hole_locked(&region));
    const struct sg_placement placement = {.begin = PAGE, .units = PAGE, .extent = region.first, .new_pages = 1};
    uint32_t busy = sg_region_claim_locked(&region, &placement);
    region.memory.handle[1] = 1;
    assert_true(sg_region_commit_locked(&region, busy, &placement, 0));
    assert_int_equal(extents.extent[region.first].state, SG_EXTENT_HOLE);
    assert_false(sg_region_is_hole_locked(&region));
    sg_region_fini(&region);
    sg_extents_fini(&extents);
}

static struct sg_core *core;
static const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};

static CUresult try_allocate(uint64_t bytes, CUdeviceptr *ret)
{
    CUresult result = sg_core_malloc(core, 0, bytes, &tag, ret);
    inspect(core, 1);
    return result;
}

static void stop(void)
{
    sg_core_destroy(core);
    strict_expect_over();
}

/* As if all nodes but so many were in use. Returns what nodes.live was, to be put back. */
static uint32_t leave_nodes(uint32_t left)
{
    struct sg_extents *extents = &core->device[0]->regions.extents;
    uint32_t live = extents->live;
    extents->live = extents->capacity - left;
    return live;
}

/* Blocks of two pages and a half, every other of which is free: a larger one needs all of the whole pages to move, and
   there are nodes for some of what they leave only. It is refused, and had once there are nodes. */
static void plan_that_runs_out_of_nodes(void **state)
{
    (void)state;
    enum { BLOCKS = 1200 };
    static CUdeviceptr block[BLOCKS];
    CUdeviceptr large = 0;
    core = inspect_start("", BLOCKS * MIB(5));
    for (int i = 0; i < BLOCKS; i++)
        assert_int_equal(sg_core_malloc(core, 0, MIB(5), &tag, &block[i]), CUDA_SUCCESS);
    for (int i = 0; i < BLOCKS; i += 2)
        assert_int_equal(sg_core_free(core, block[i], &tag), CUDA_SUCCESS);
    apply(core, 0, SEGALLOC_RECORD_MERGE, 0, 0);
    uint32_t live = leave_nodes(EXTENTS_SPARE_OF_CLAIM + 8);
    assert_int_equal(try_allocate(BLOCKS * MIB(2), &large), CUDA_ERROR_OUT_OF_MEMORY);
    core->device[0]->regions.extents.live = live;
    inspect(core, 1);
    assert_int_equal(try_allocate(BLOCKS * MIB(2), &large), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, large, &tag), CUDA_SUCCESS);
    stop();
}

static void nothing_goes_back_without_nodes(void **state)
{
    (void)state;
    CUdeviceptr block = 0;
    core = inspect_start("", MIB(64));
    assert_int_equal(try_allocate(MIB(6), &block), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    uint32_t live = leave_nodes(EXTENTS_SPARE_OF_CUT);
    assert_int_equal(sg_core_trim(core, 0, 0), 0);
    core->device[0]->regions.extents.live = live;
    inspect(core, 1);
    assert_int_equal(sg_core_trim(core, 0, 0), MIB(6));
    stop();
}

static void segments_without_nodes(void **state)
{
    (void)state;
    CUdeviceptr block = 5;
    core = inspect_start("expandable_segments:False", MIB(64));
    (void)sg_device_get(core, 0);
    uint32_t live = leave_nodes(SG_EXTENTS_SPARE);
    assert_int_equal(try_allocate(MIB(6), &block), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(block, 5);
    core->device[0]->regions.extents.live = live;
    assert_int_equal(try_allocate(MIB(6), &block), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(region_of_few_units),
        cmocka_unit_test(blocks_have_the_nodes_of_their_places),
        cmocka_unit_test(node_of_another_region),
        cmocka_unit_test(hole_is_not_all_of_a_region),
        cmocka_unit_test(plan_that_runs_out_of_nodes),
        cmocka_unit_test(nothing_goes_back_without_nodes),
        cmocka_unit_test(segments_without_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
