/* Memory that the core does not serve is noted of devices that are ready and of others, and no note makes one ready. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/outside_memory.h"
#include "inspect/core_state.h"
#include "inspect/oom_text.h"
#include "rooms.h"
#include "size.h"
#include "strict_kept.h"

enum { MOST = 256 };
#define TOTAL (64 * SG_MIB)

static struct sg_driver driver;
static struct sg_core *core;
static struct segalloc_trace_record seen[MOST];
static int count;
static uint64_t in_pools, in_pools_before; /* by the layer above: now, and at a moment that is over */
static CUresult total_answer;

static void observe(void *sink, const struct segalloc_trace_record *record)
{
    (void)sink;
    if (count < MOST)
        seen[count++] = *record;
}

static void outside(int device, struct sg_outside *ret, struct sg_outside *ret_most)
{
    (void)device;
    ret->bytes[SEGALLOC_OUTSIDE_POOLS] = in_pools;
    ret_most->bytes[SEGALLOC_OUTSIDE_POOLS] = in_pools_before;
}

static CUresult total_of(size_t *ret, CUdevice device)
{
    return total_answer == CUDA_SUCCESS ? strict_driver.device_total(ret, device) : total_answer;
}

static void start(bool observed)
{
    struct sg_conf conf;
    strict_reset(2, TOTAL, 2 * SG_MIB);
    sg_conf_init(&conf);
    driver = strict_driver;
    driver.device_total = total_of;
    total_answer = CUDA_SUCCESS;
    in_pools = in_pools_before = 0;
    count = 0;
    core = sg_core_create(&(struct sg_core_params){.conf = &conf,
        .driver = &driver,
        .observer = {observed ? observe : NULL, NULL},
        .callbacks = {.outside = outside}});
    assert_non_null(core);
}

static void stop(void)
{
    sg_core_destroy(core);
    strict_expect_over();
}

/* Records of a kind, and the latest one. */
static int records_of(enum segalloc_record_kind kind, struct segalloc_trace_record *ret)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (seen[i].kind == kind) {
            found++;
            *ret = seen[i];
        }
    }
    return found;
}

static uint64_t statistic(int device, enum sg_stat stat)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, device, &stats));
    return stats.value[stat];
}

static void make_ready(int device)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address;
    strict_use(device);
    assert_int_equal(sg_core_malloc(core, device, SG_MIB, &tag, &address), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    strict_use(0);
}

static void notes_before_a_device_is_ready_are_taken_over(void **state)
{
    (void)state;
    struct segalloc_trace_record record = {0};
    start(/* observed */ true);
    in_pools = 3 * SG_MIB;
    for (int i = 0; i < 2; i++)
        sg_core_note_outside(core, 1, /* current */ false);
    assert_int_equal(records_of(SEGALLOC_RECORD_DEFINE_DEVICE, &record), 1);
    assert_true(record.stream == 1 && record.size == TOTAL);
    assert_int_equal(records_of(SEGALLOC_RECORD_DEFINE_STREAM, &record), 1);
    assert_int_equal(records_of(SEGALLOC_RECORD_OUTSIDE, &record), 1);
    assert_true(record.id == SEGALLOC_OUTSIDE_POOLS && record.size == 3 * SG_MIB);
    sg_core_count_outside(core, 1);
    sg_core_failed(core, 1);
    sg_core_settled(core, 1, SEGALLOC_SETTLED_FAILED, 5);
    assert_int_equal(records_of(SEGALLOC_RECORD_SETTLED, &record), 1);
    assert_true(record.id == SEGALLOC_SETTLED_FAILED && record.size == 5);
    assert_null(sg_device_known(core, 1));
    make_ready(1);
    assert_int_equal(statistic(1, SG_STAT_outside_allocs), 1);
    assert_int_equal(statistic(1, SG_STAT_ooms), 1);
    assert_int_equal(records_of(SEGALLOC_RECORD_DEFINE_STREAM, &record), 1);
    stop();
}

static void notes_of_a_ready_device_are_its_own(void **state)
{
    (void)state;
    struct segalloc_trace_record record = {0};
    start(/* observed */ true);
    make_ready(0);
    in_pools = SG_MIB;
    in_pools_before = 4 * SG_MIB; /* a peak that is over comes first */
    count = 0;
    sg_core_note_outside(core, 0, /* current */ false);
    assert_int_equal(records_of(SEGALLOC_RECORD_OUTSIDE, &record), 2);
    assert_true(seen[0].size == 4 * SG_MIB && record.size == SG_MIB);
    sg_core_count_outside(core, 0);
    sg_core_failed(core, 0);
    sg_core_settled(core, 0, SEGALLOC_SETTLED_ELSEWHERE, 7);
    assert_int_equal(records_of(SEGALLOC_RECORD_SETTLED, &record), 1);
    assert_int_equal(record.size, 7);
    sg_core_refused_outside(core, 0, SEGALLOC_OUTSIDE_POOLS, 9);
    assert_int_equal(records_of(SEGALLOC_RECORD_REFUSED_OUTSIDE, &record), 1);
    assert_true(record.id == SEGALLOC_OUTSIDE_POOLS && record.size == 9);
    assert_int_equal(statistic(0, SG_STAT_outside_allocs), 1);
    assert_int_equal(statistic(0, SG_STAT_ooms), 1);
    assert_int_equal(statistic(0, SG_STAT_refused), 1);
    stop();
}

/* A call that was refused although there was room is short by a unit. */
static void refusal_before_a_device_is_ready_has_a_shortage(void **state)
{
    (void)state;
    struct segalloc_trace_record record = {0};
    start(/* observed */ true);
    in_pools = 60 * SG_MIB;
    sg_core_refused_outside(core, 0, SEGALLOC_OUTSIDE_PHYSICAL, 10 * SG_MIB);
    assert_int_equal(records_of(SEGALLOC_RECORD_REFUSED_OUTSIDE, &record), 1);
    assert_true(record.id == SEGALLOC_OUTSIDE_PHYSICAL && record.size == 10 * SG_MIB);
    assert_int_equal(core->unready[0].shortage.room, 4 * SG_MIB);
    assert_int_equal(core->unready[0].shortage.short_by, 6 * SG_MIB);
    sg_core_refused_outside(core, 0, SEGALLOC_OUTSIDE_ARRAYS, SG_MIB);
    assert_int_equal(core->unready[0].shortage.short_by, SG_UNIT);
    assert_int_equal(core->unready[0].shortage.by, SEGALLOC_OUTSIDE_ARRAYS);
    assert_int_equal(core->unready[0].shortage.total, TOTAL);
    char text[1024];
    assert_true(sg_core_oom_text(core, 0, NULL, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "for an array"));
    assert_int_equal(core->unready[0].refused, 2);

    total_answer = CUDA_ERROR_NOT_INITIALIZED; /* nothing is known of device 1, so no record defines it */
    count = 0;
    sg_core_refused_outside(core, 1, SEGALLOC_OUTSIDE_ARRAYS, SG_MIB);
    assert_int_equal(records_of(SEGALLOC_RECORD_DEFINE_DEVICE, &record), 0);
    assert_int_equal(core->unready[1].shortage.short_by, SG_MIB);
    stop();
}

static void without_an_observer_nobody_is_asked(void **state)
{
    (void)state;
    start(/* observed */ false);
    in_pools = 3 * SG_MIB;
    sg_core_note_outside(core, 0, /* current */ false);
    assert_int_equal(core->unready[0].total_bytes, 0);
    sg_core_refused_outside(core, 0, SEGALLOC_OUTSIDE_POOLS, SG_MIB);
    assert_int_equal(core->unready[0].shortage.outside, 0);
    make_ready(0);
    assert_int_equal(statistic(0, SG_STAT_refused), 1);
    stop();
}

static void numbers_of_no_device_are_passed_over(void **state)
{
    (void)state;
    const int numbers[] = {-1, SG_DEVICES_MAX};
    start(/* observed */ true);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sg_core_note_outside(core, numbers[i], /* current */ false);
        sg_core_count_outside(core, numbers[i]);
        sg_core_refused_outside(core, numbers[i], SEGALLOC_OUTSIDE_POOLS, SG_MIB);
        sg_core_failed(core, numbers[i]);
        sg_core_settled(core, numbers[i], SEGALLOC_SETTLED_FAILED, SG_MIB);
    }
    assert_int_equal(count, 0);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_before_a_device_is_ready_are_taken_over),
        cmocka_unit_test(notes_of_a_ready_device_are_its_own),
        cmocka_unit_test(refusal_before_a_device_is_ready_has_a_shortage),
        cmocka_unit_test(without_an_observer_nobody_is_asked),
        cmocka_unit_test(numbers_of_no_device_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
