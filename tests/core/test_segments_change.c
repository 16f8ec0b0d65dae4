/* A device that changes from regions to fixed segments, or to whole ones, says so and loses nothing. */
#include "segments_steps.h"

/* A replay reads from the trace that a context's segments are gone. */
static void test_segments_go_in_a_replay(void **state)
{
    (void)state;
    start("ipc:always");
    CUdeviceptr block = allocate(first, BYTES);
    release(first, block);
    core->callbacks.aside = put_off;
    assert_int_equal(statistic(SG_STAT_reserved_bytes), BYTES);
    end_in_driver(&block, 1);
    apply(core, 0, SEGALLOC_RECORD_CONTEXT_GONE, (uint64_t)(uintptr_t)(first), 0);
    assert_int_equal(statistic(SG_STAT_reserved_bytes), 0);
    core->callbacks.aside = NULL;
    finish();
}

/* The record of a block: its thread, whether it was waited for, and whether others used it. */
static struct segalloc_trace_record latest;

static void observe(void *sink, const struct segalloc_trace_record *record)
{
    (void)sink;
    latest = *record;
}

static void test_what_is_told_of_blocks(void **state)
{
    (void)state;
    const struct sg_tag torch = {.context = first, .sync = SG_FREE_SYNC_EVENT, .torch = true},
                        recorded = {.context = first, .sync = SG_FREE_SYNC_EVENT, .user_rule = SG_USERS_RECORDED},
                        possible = {.context = first, .sync = SG_FREE_SYNC_EVENT, .user_rule = SG_USERS_POSSIBLE};
    const struct sg_tag *const tags[] = {&torch, &recorded, &possible};
    struct sg_block_info info;
    CUdeviceptr address = 0;
    bool all = true;
    start("expandable_segments:False");
    core->observer.emit = observe;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        assert_int_equal(sg_core_malloc(core, 0, BYTES, tags[i], &address), CUDA_SUCCESS);
        assert_int_equal(latest.kind, SEGALLOC_RECORD_ALLOCATE);
        assert_int_equal(latest.flags & SEGALLOC_FLAG_TORCH, tags[i]->torch ? SEGALLOC_FLAG_TORCH : 0);
        assert_int_equal(sg_core_wait(core, address, first, &all), CUDA_SUCCESS);
        assert_false(all);                                /* the second context is one of the device too */
        sg_core_used_cross_device(core, address + BYTES); /* behind it */
        assert_int_equal(sg_core_block(core, address, &info), CUDA_SUCCESS);
        assert_false(info.cross_device);
        sg_core_used_cross_device(core, address + BYTES - 1);
        assert_int_equal(sg_core_block(core, address, &info), CUDA_SUCCESS);
        assert_true(info.cross_device);
        assert_int_equal(sg_core_wait(core, address + 512, first, &all), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(sg_core_free(core, address + 512, tags[i]), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(sg_core_free(core, address, tags[i]), CUDA_SUCCESS);
        assert_int_equal(latest.kind, SEGALLOC_RECORD_FREE);
        assert_int_equal(latest.flags & SEGALLOC_FLAG_TORCH, tags[i]->torch ? SEGALLOC_FLAG_TORCH : 0);
    }
    CUdeviceptr kept = allocate(first, SMALL);
    sg_core_used_cross_device(core, kept + 2 * SMALL); /* in its segment, behind it */
    assert_int_equal(sg_core_block(core, kept, &info), CUDA_SUCCESS);
    assert_false(info.cross_device);
    sg_core_disable(core);
    assert_int_equal(sg_core_free(core, kept, &torch), CUDA_SUCCESS);
    sg_core_enable(core);
    assert_int_equal(sg_core_block(core, kept, &info), CUDA_SUCCESS);
    release(first, kept);
    finish();
}

static void note_all(void *sink, const struct segalloc_trace_record *record)
{
    (void)sink;
    if (told_count < sizeof told / sizeof *told)
        told[told_count++] = *record;
}

/* A device that served regions serves fixed segments from now on. Blocks of both kinds are known, freed and counted. */
static void test_regions_before_segments(void **state)
{
    (void)state;
    size_t available = 100 * SG_MIB, total = 256 * SG_MIB;
    start("");
    core->observer = (struct sg_event_sink){note_all, NULL};
    told_count = 0;
    CUdeviceptr before[3] = {allocate(first, BYTES), allocate(second, BYTES), allocate(first, SMALL)};
    release(first, before[0]);
    assert_false(sg_core_left_pages(core, 0));
    assert_true(sg_core_fix(core, 0, /* whole */ true));
    assert_true(sg_core_left_pages(core, 0));
    assert_true(sg_core_fix(core, 0, true)); /* so it is */
    assert_int_equal(count_of(SEGALLOC_RECORD_FIXED), 1);
    CUdeviceptr after[3] = {allocate(first, BYTES), allocate(second, SMALL), allocate(first, SMALL)};
    assert_true(sg_core_range_at(core, before[1]) && sg_core_range_at(core, before[2]));
    for (int i = 0; i < 3; i++) {
        assert_null(sg_core_range_at(core, after[i]));
        assert_true(sg_core_owns(core, after[i]));
        expect_block(after[i], i == 1 ? second : first, i == 0 ? BYTES : SMALL);
    }
    expect_block(before[1], second, BYTES);
    assert_int_equal(statistic(SG_STAT_allocations), 5);
    assert_int_equal(statistic(SG_STAT_reserved_bytes), strict_used(0));
    sg_core_mem_info(core, 0, &available, &total);
    assert_int_equal(available, 120 * SG_MIB); /* the pages that nobody can use here any more */
    assert_int_equal(sg_core_trim(core, 0, 0), BYTES);
    release(first, after[2]);
    assert_int_equal(sg_core_trim(core, 0, 0), SMALL_SEGMENT);
    assert_int_equal(statistic(SG_STAT_reserved_bytes), strict_used(0));
    sg_core_context_gone(core, 0, second); /* its blocks of both kinds, the segment's memory by the driver */
    end_in_driver(&after[1], 1);
    assert_int_equal(statistic(SG_STAT_allocations), 2);
    release(first, before[2]);
    release(first, after[0]);
    finish();
}

/* A card that is full of what the regions have left: once that is given back, there is room for a segment. */
static void test_pages_make_room_for_segments(void **state)
{
    (void)state;
    const struct sg_tag tag = {.context = first, .sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr block[12], address = 0;
    start("");
    for (int i = 0; i < 12; i++)
        block[i] = allocate(first, BYTES);
    assert_true(sg_core_fix(core, 0, /* whole */ false));
    for (int i = 0; i < 12; i++)
        release(first, block[i]);
    assert_int_equal(sg_core_malloc(core, 0, BYTES, &tag, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sg_core_trim(core, 0, 0), 12 * BYTES);
    release(first, allocate(first, BYTES));
    finish();
}

/* Segments that blocks shared before are not shared from then on; what is left of a divided one serves nobody before it
   is whole. Devices that are first used later begin so. */
static void test_segments_become_whole(void **state)
{
    (void)state;
    start("expandable_segments:False");
    core->observer = (struct sg_event_sink){note_all, NULL};
    told_count = 0;
    CUdeviceptr pair[2] = {allocate(first, SMALL), allocate(first, SMALL)};
    assert_int_equal(pair[1], pair[0] + SMALL_SEGMENT);
    sg_core_share(core);
    sg_core_share(core);
    assert_int_equal(count_of(SEGALLOC_RECORD_FIXED), 1);
    release(first, pair[1]);
    CUdeviceptr alone = allocate(first, SMALL), more = allocate(first, SMALL);
    assert_int_equal(statistic(SG_STAT_segments), 3);
    release(first, pair[0]);
    assert_int_equal(sg_core_trim(core, 0, 0), 2 * SG_MIB);
    release(first, alone);
    assert_int_equal(allocate(first, SMALL), alone); /* a whole one is used again */
    release(first, alone);
    release(first, more);
    finish();
    strict_reset(2, 256 * SG_MIB, 2 * SG_MIB);
    struct sg_conf conf;
    sg_conf_init(&conf);
    core = sg_core_create(
        &(struct sg_core_params){.conf = &conf, .driver = &strict_driver, .observer = {note_all, NULL}});
    told_count = 0;
    sg_core_share(core);
    assert_int_equal(count_of(SEGALLOC_RECORD_FIXED), 0);
    CUdeviceptr block = allocate(first, SMALL);
    assert_null(sg_core_range_at(core, block));
    assert_int_equal(count_of(SEGALLOC_RECORD_FIXED), 1);
    release(first, block);
    finish();
}

/* Each change has one record: to fixed segments, and from parts of them to whole ones. */
static void test_each_change_is_told(void **state)
{
    struct sg_conf conf;
    (void)state;
    strict_reset(2, 256 * SG_MIB, 2 * SG_MIB);
    sg_conf_init(&conf);
    core = sg_core_create(
        &(struct sg_core_params){.conf = &conf, .driver = &strict_driver, .observer = {note_all, NULL}});
    told_count = 0;
    assert_false(sg_core_fix(core, -1, false));
    for (int whole = 0; whole < 2; whole++) {
        for (int again = 0; again < 2; again++)
            assert_true(sg_core_fix(core, 0, whole != 0));
        assert_int_equal(count_of(SEGALLOC_RECORD_FIXED), 1 + whole);
    }
    assert_true(sg_core_fix(core, 0, false)); /* whole ones stay whole */
    assert_int_equal(count_of(SEGALLOC_RECORD_FIXED), 2);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments_go_in_a_replay),
        cmocka_unit_test(test_what_is_told_of_blocks),
        cmocka_unit_test(test_regions_before_segments),
        cmocka_unit_test(test_pages_make_room_for_segments),
        cmocka_unit_test(test_segments_become_whole),
        cmocka_unit_test(test_each_change_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
