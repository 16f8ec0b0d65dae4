/* The cases with numbers that the headers of the core and docs/design.md work through: each number that they name is here.
   The addresses are those of the strict driver, whose first reservation is at 0x7f0000400000. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rooms.h"
#include "core/core.h"
#include "inspect/core_state.h"
#include "inspect.h"
#include "strict_kept.h"
#include "core/space/free_index.h"
#include "core/space/page_size.h"
#include "locked.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define REGULAR UINT64_C(0x7f0000400000)

static struct sg_core *core;

static sg_slot follow_stream(uint64_t key)
{
    const struct sg_stream_id id = {.key = key};
    return sg_core_slot(core, 0, &id);
}

static CUresult try_allocate(sg_slot slot, uint64_t bytes, CUdeviceptr *ret)
{
    const struct sg_tag tag = {.slot = slot};
    if (slot)
        sg_core_slot_submitted(core, 0, slot);
    CUresult result = sg_core_malloc(core, 0, bytes, &tag, ret);
    inspect(core, 1);
    return result;
}

static CUdeviceptr allocate(sg_slot slot, uint64_t bytes)
{
    CUdeviceptr address = 0;
    assert_int_equal(try_allocate(slot, bytes, &address), CUDA_SUCCESS);
    return address;
}

static void release(sg_slot slot, CUdeviceptr address, enum sg_free_sync sync)
{
    const struct sg_tag tag = {.slot = slot, .sync = sync};
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    inspect(core, 1);
}

static uint64_t value(enum sg_stat stat)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, 0, &stats));
    return stats.value[stat];
}

static uint64_t now(void)
{
    return sg_device_known(core, 0)->clocks.seq;
}

static void stop(void)
{
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    strict_expect_over();
}

/* A card of 24 GiB with 122 blocks of 200 MiB, two of which are freed: 24400 MiB held, 400 of them idle. */
static void fill_card(CUdeviceptr block[122])
{
    core = inspect_start("", GIB(24));
    for (int i = 0; i < 122; i++)
        block[i] = allocate(0, MIB(200));
    release(0, block[10], SG_FREE_SYNC_COMPLETE);
    release(0, block[50], SG_FREE_SYNC_COMPLETE);
    assert_int_equal(value(SG_STAT_reserved_bytes), MIB(24400));
    assert_int_equal(value(SG_STAT_allocated_bytes), MIB(24000));
}

/* grow.h, plan.h, execute.h: 300 MiB on a nearly full card. */
static void test_ladder_creates_and_moves(void **state)
{
    (void)state;
    CUdeviceptr block[122], failed = 0;
    fill_card(block);
    assert_int_equal(sg_device_known(core, 0)->regions.page_bytes[SG_KIND_REGULAR], MIB(4));
    CUmemGenericAllocationHandle kept = strict_mapped(block[50] + MIB(4) * 18, MIB(4)),
                                 moved = strict_mapped(block[50] + MIB(4) * 19, MIB(4));
    uint64_t maps = value(SG_STAT_calls_map), unmaps = value(SG_STAT_calls_unmap),
             accesses = value(SG_STAT_calls_set_access), created = value(SG_STAT_pages_created);
    CUdeviceptr large = allocate(0, MIB(300));
    assert_int_equal(value(SG_STAT_pages_created) - created, 44);
    assert_int_equal(value(SG_STAT_pages_moved), 31);
    assert_int_equal(value(SG_STAT_calls_map) - maps, 75);
    assert_int_equal(value(SG_STAT_calls_unmap) - unmaps, 1);
    assert_int_equal(value(SG_STAT_calls_set_access) - accesses, 1);
    assert_int_equal(value(SG_STAT_reserved_bytes), GIB(24));
    assert_int_equal(large, UINT64_C(0x7f05f5400000));
    assert_int_equal(block[50] + MIB(4) * 19, UINT64_C(0x7f0276000000));
    assert_int_equal(large + MIB(4) * 44, UINT64_C(0x7f0600400000));
    assert_int_equal(strict_mapped(large + MIB(4) * 44, MIB(4)), moved);
    assert_int_equal(strict_mapped(block[50] + MIB(4) * 18, MIB(4)), kept);
    assert_int_equal(strict_mapped(block[50] + MIB(4) * 19, MIB(4)), 0);
    /* A second one finds 276 MiB idle and nothing to create. */
    struct sg_shortage shortage;
    assert_int_equal(try_allocate(0, MIB(300), &failed), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(sg_core_shortage(core, 0, &shortage));
    assert_int_equal(shortage.idle, MIB(276));
    assert_int_equal(shortage.room, 0);
    assert_int_equal(shortage.short_by, MIB(24));
    char text[4096];
    (void)sg_core_oom_text(core, 0, NULL, text, sizeof text);
    assert_string_equal(text, /* oom_text.c */
        "segalloc: out of memory on device 0: short by 24.00 MiB: 300.00 MiB asked for, 276.00 MiB to be had (276.00 "
        "MiB idle + 0 B free)\n"
        "  cause    too big: with the 23.73 GiB in use that is 24.02 GiB, of 24.00 GiB at most\n"
        "  help     smaller batches or sequences, or checkpointing, need less\n"
        "  device   24.00 GiB: 24.00 GiB held by segalloc, 0 B in use by others, 0 B free\n"
        "  segalloc 24.00 GiB: 23.73 GiB in use, 0 B freed but still in use by queued work, 276.00 MiB idle\n"
        "  holds    23.44 GiB in 120 blocks, 200.00 MiB on average\n"
        "  holds    300.00 MiB in 1 block\n"
        "  next     segalloc rehearse --card 24GiB -- CMD\n");
    stop();
}

/* page_alias.h: a page that moves while its old address is still in use. */
static void test_page_keeps_its_old_address(void **state)
{
    (void)state;
    CUdeviceptr block[4];
    core = inspect_start("reserve_slack:1.0", MIB(512));
    sg_slot slot = follow_stream(1);
    for (int i = 0; i < 4; i++)
        block[i] = allocate(slot, MIB(8));
    CUmemGenericAllocationHandle page = strict_mapped(block[2], MIB(2));
    release(slot, block[0], SG_FREE_SYNC_STREAM);
    release(slot, block[2], SG_FREE_SYNC_STREAM);
    CUdeviceptr large = allocate(slot, MIB(16));
    assert_int_equal(block[2], UINT64_C(0x7f0001400000));
    assert_int_equal(large, UINT64_C(0x7f0002400000));
    assert_int_equal(strict_mapped(large, MIB(2)), page);
    assert_int_equal(strict_mapped(block[2], MIB(2)), page);
    assert_int_equal(value(SG_STAT_aliased_bytes), MIB(16));
    assert_int_equal(value(SG_STAT_reserved_bytes), MIB(32));
    strict_complete(UINT32_MAX);
    (void)allocate(slot, MIB(2)); /* the next to grow unmaps it */
    assert_int_equal(strict_mapped(block[2], MIB(2)), 0);
    assert_int_equal(strict_mapped(large, MIB(2)), page);
    assert_int_equal(value(SG_STAT_late_unmaps), 8);
    assert_int_equal(value(SG_STAT_aliased_bytes), 0);
    stop();
}

/* stream_clock.h: R15, and R16 where the stream is untracked. */
static void free_between_two_streams(bool untracked, uint64_t *ret_freed, bool *ret_usable)
{
    struct sg_vector_clock event;
    core = inspect_start("", MIB(64));
    sg_slot one = follow_stream(1), two = follow_stream(2);
    struct sg_device *device = sg_device_known(core, 0);
    assert_int_equal(now(), 2);
    CUdeviceptr block = allocate(one, MIB(2));
    assert_int_equal(now(), 3);
    sg_core_clock(core, 0, one, &event);
    assert_int_equal(event.at[one], 4);
    sg_core_ordered_after(core, 0, two, &event);
    assert_int_equal(now(), 5);
    if (untracked)
        sg_core_slot_untracked_order(core, 0, one);
    release(one, block, SG_FREE_SYNC_STREAM);
    const struct sg_after after = device->regions.region[0]->memory.after[0];
    *ret_freed = after.seq;
    sg_device_lock(device);
    *ret_usable = sg_after_usable(&device->clocks, after, two);
    sg_device_unlock(device);
    stop();
}

static void test_number_of_a_free(void **state)
{
    (void)state;
    uint64_t freed;
    bool usable;
    free_between_two_streams(/* untracked */ false, &freed, &usable);
    assert_int_equal(freed, 4);
    assert_true(usable);
    free_between_two_streams(/* untracked */ true, &freed, &usable);
    assert_int_equal(freed, 6);
    assert_false(usable);
}

/* docs/design.md: allocations from the first one on, and where they stand. */
static void test_followed_through_the_layers(void **state)
{
    (void)state;
    core = inspect_start("", GIB(24));
    assert_int_equal(allocate(0, 1000), REGULAR);
    assert_int_equal(allocate(0, 1000), REGULAR + 1024);
    const struct sg_device *device = sg_device_known(core, 0);
    assert_int_equal(sg_purpose_kind(device->regions.purpose[0]), SG_KIND_SMALL);
    assert_int_equal((uint64_t)device->regions.region[0]->units * SG_UNIT, GIB(3));
    assert_int_equal(value(SG_STAT_reserved_bytes), MIB(2));
    CUdeviceptr large = allocate(0, MIB(300) + 1);
    assert_int_equal(large, UINT64_C(0x7f00c0600000));
    assert_int_equal((uint64_t)device->regions.region[1]->units * SG_UNIT, GIB(48));
    assert_int_equal(value(SG_STAT_reserved_bytes), MIB(306));
    assert_int_equal(value(SG_STAT_allocated_bytes), MIB(300) + SG_UNIT + 2 * 1024);
    const struct sg_extent *extent = &device->regions.region[1]->extent[device->regions.region[1]->first];
    assert_int_equal(extent->state, SG_EXTENT_BLOCK);
    assert_int_equal(extent->size, 614401);
    assert_int_equal(device->regions.region[1]->extent[extent->next].size, 8191);
    release(0, large, SG_FREE_SYNC_COMPLETE);
    assert_int_equal(value(SG_STAT_reserved_bytes), MIB(306));
    CUdeviceptr huge = allocate(0, GIB(13));
    assert_int_equal(huge, UINT64_C(0x7f0cc0800000));
    assert_int_equal(value(SG_STAT_pages), 78);
    stop();
}

/* budget.h: how many bytes of 300 MiB are better moved, and how many must be. */
static void test_bytes_that_should_move(void **state)
{
    (void)state;
    CUdeviceptr block[122];
    fill_card(block);
    struct sg_device *device = sg_device_known(core, 0);
    struct sg_wanted wanted = LOCKED(device, sg_device_moves_wanted_locked(device, MIB(300), MIB(300), false));
    assert_int_equal(wanted.should, MIB(124));
    assert_int_equal(wanted.must, MIB(124));
    DO_LOCKED(device, device->room.refused_at = MIB(24500));
    wanted = LOCKED(device, sg_device_moves_wanted_locked(device, MIB(300), MIB(300), false));
    assert_int_equal(wanted.should, MIB(200));
    assert_int_equal(wanted.must, MIB(124));
    wanted = LOCKED(device, sg_device_moves_wanted_locked(device, MIB(300), MIB(300), true));
    assert_int_equal(wanted.must, MIB(200));
    stop();
}

/* page_size.h, tiling.h, free_index.h, trace_streams.h. */
static void test_sizes_and_indexes(void **state)
{
    (void)state;
    assert_int_equal(sg_pages_when_full(12288), 10240);
    assert_int_equal(sg_core_page_bytes(MIB(2), GIB(80), 12288), MIB(8));
    assert_int_equal(sg_core_page_bytes(MIB(2), GIB(24), 12288), MIB(4));
    const struct sg_region region = {.page_units = 4096, .page_shift = 12};
    assert_int_equal(page_of(&region, 5000), 1);
    assert_int_equal(pages_inside(&region, 5000, 9000), 1);
    assert_int_equal(size_class_of(3000), 91);
    assert_int_equal(size_class_of(2990), 91);
    assert_int_equal(size_class_of(2816), 91);
    assert_int_equal(size_class_of(3072), 92);
    const struct sg_device second = {.ordinal = 1};
    assert_int_equal(sg_device_unknown_stream(&second), 320);
    assert_int_equal(sg_device_slot_stream(&second, 1), 577);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ladder_creates_and_moves),
        cmocka_unit_test(test_page_keeps_its_old_address),
        cmocka_unit_test(test_number_of_a_free),
        cmocka_unit_test(test_bytes_that_should_move),
        cmocka_unit_test(test_sizes_and_indexes),
        cmocka_unit_test(test_followed_through_the_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
