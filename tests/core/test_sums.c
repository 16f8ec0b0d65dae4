/* Numbers from outside at the ends of their range: sizes that a program asks for, what a driver or a trace says. Sums of
   them would wrap, and small results be taken for true. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "size.h"
#include "strict_driver.h"

enum { TOTAL = 256 << 20, BLOCK = 8 << 20 };

static const struct sg_tag plain = {.sync = SG_FREE_SYNC_COMPLETE};
static struct sg_core *core;

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr address = 0;
    assert_int_equal(sg_core_malloc(core, 0, bytes, &plain, &address), CUDA_SUCCESS);
    return address;
}

static uint64_t statistic(enum sg_stat which)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, 0, &stats));
    return stats.value[which];
}

/* Runs out by asking for `bytes`; whether the limit is what is advised to be raised then. */
static bool blames_limit(size_t bytes)
{
    char text[4096];
    CUdeviceptr address;
    assert_int_equal(sg_core_malloc(core, 0, bytes, &plain, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(sg_core_oom_text(core, 0, NULL, text, sizeof text) < sizeof text);
    return strstr(text, "raise `limit`") != NULL;
}

static void request_beyond_all_is_not_the_limits_fault(void **state)
{
    (void)state;
    core = inspect_start("limit:64MiB", TOTAL);
    allocate(BLOCK);
    assert_true(blames_limit(TOTAL / 2));
    assert_false(blames_limit(SIZE_MAX));
    assert_false(blames_limit(SIZE_MAX - BLOCK + 1)); /* with what is alive: 2^64 */
    sg_core_destroy(core);
}

static CUresult more_free_than_there_is(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = TOTAL;
    *free_bytes = TOTAL + SG_MIB;
    return CUDA_SUCCESS;
}

static void driver_has_more_free_than_there_is(void **state)
{
    (void)state;
    struct sg_driver driver = strict_driver;
    struct sg_conf conf;
    driver.mem_info = more_free_than_there_is;
    strict_reset(1, TOTAL, 2 << 20);
    sg_conf_init(&conf);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver});
    assert_non_null(core);
    allocate(BLOCK);
    assert_int_equal(core->device[0]->room.outside_bytes, 0);
    sg_core_destroy(core);
}

static void others_use_no_more_than_there_is(void **state)
{
    (void)state;
    core = inspect_start("", TOTAL);
    CUdeviceptr block = allocate(BLOCK);
    apply(core, 0, SEGALLOC_RECORD_PRESSURE, 0, UINT64_MAX);
    assert_int_equal(core->device[0]->room.outside_bytes, TOTAL);
    assert_int_equal(sg_core_free(core, block, &plain), CUDA_SUCCESS);
    assert_int_equal(allocate(BLOCK), block);
    sg_core_destroy(core);
}

static void pin_goes_to_the_end_at_most(void **state)
{
    (void)state;
    core = inspect_start("", TOTAL);
    allocate(BLOCK);
    CUdeviceptr second = allocate(BLOCK);
    const struct sg_range *range = sg_core_range_at(core, second);
    assert_true(range && range->begin < second);
    sg_core_pin(core, second, SIZE_MAX);
    assert_int_equal(statistic(SG_STAT_pinned_bytes), ((uint64_t)range->region->units << SG_UNIT_SHIFT) -
                                                          (second - range->begin));
    sg_core_destroy(core);
}

static void device_larger_than_any_is_the_drivers(void **state)
{
    (void)state;
    CUdeviceptr address;
    const uint64_t totals[] = {UINT64_MAX, UINT64_C(1) << 63, SEGALLOC_TRACE_DEVICE_MOST + 1};
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        core = inspect_start("", totals[i]);
        assert_int_equal(sg_core_malloc(core, 0, BLOCK, &plain, &address), CUDA_ERROR_NOT_SUPPORTED);
        sg_core_destroy(core);
    }
}

static struct segalloc_trace_record told = {.kind = SEGALLOC_RECORD_ALLOCATE, .id = UINT64_MAX - 4095};

static const struct segalloc_trace_record *turn(void)
{
    return &told;
}

static void give_way(void)
{
}

/* The address of a segment, in a replay, is what a file says. */
static void segment_beyond_all_addresses_is_none(void **state)
{
    (void)state;
    const struct sg_replay replay = {turn, give_way};
    struct sg_conf conf;
    CUdeviceptr address = 0;
    strict_reset(1, TOTAL, 2 << 20);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, "expandable_segments:False", NULL, NULL), 0);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &strict_driver, .replay = &replay});
    assert_non_null(core);
    assert_int_equal(sg_core_malloc(core, 0, BLOCK, &plain, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(statistic(SG_STAT_reserved_bytes), 0);
    told.id = UINT64_C(1) << 40;
    address = allocate(BLOCK);
    assert_int_equal(address, told.id);
    assert_int_equal(sg_core_free(core, address, &plain), CUDA_SUCCESS);
    sg_core_destroy(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_beyond_all_is_not_the_limits_fault),
        cmocka_unit_test(driver_has_more_free_than_there_is),
        cmocka_unit_test(others_use_no_more_than_there_is),
        cmocka_unit_test(pin_goes_to_the_end_at_most),
        cmocka_unit_test(device_larger_than_any_is_the_drivers),
        cmocka_unit_test(segment_beyond_all_addresses_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
