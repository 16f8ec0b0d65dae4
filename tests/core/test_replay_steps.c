/* What the core tells its observer of sections that decide something, so that a replay has each of them in its
   place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "strict_kept.h"

#define MIB(n) ((uint64_t)(n) << 20)

enum { MOST = 64 };

/* What has been told since forget(). */
static struct segalloc_trace_record told[MOST];
static int count;

static void forget(void)
{
    count = 0;
}

static void observe(void *sink, const struct segalloc_trace_record *record)
{
    (void)sink;
    if (count < MOST)
        told[count++] = *record;
}

static struct sg_core *start(const char *text, uint64_t total)
{
    struct sg_conf conf;
    strict_reset(1, total, MIB(2));
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    struct sg_core *core = sg_core_create(
        &(struct sg_core_params){.conf = &conf, .driver = &strict_driver, .observer = {observe, NULL}});
    assert_non_null(core);
    return core;
}

static void stop(struct sg_core *core)
{
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    strict_expect_over();
}

static CUresult ask(struct sg_core *core, sg_slot slot, uint64_t bytes, CUdeviceptr *ret)
{
    const struct sg_tag tag = {.slot = slot};
    sg_core_slot_submitted(core, 0, slot);
    return sg_core_malloc(core, 0, bytes, &tag, ret);
}

static CUdeviceptr allocate(struct sg_core *core, sg_slot slot, uint64_t bytes)
{
    CUdeviceptr address;
    assert_int_equal(ask(core, slot, bytes, &address), CUDA_SUCCESS);
    return address;
}

static void release(struct sg_core *core, sg_slot slot, CUdeviceptr address)
{
    const struct sg_tag tag = {.slot = slot, .sync = slot ? SG_FREE_SYNC_STREAM : SG_FREE_SYNC_COMPLETE};
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
}

static void expect(const struct segalloc_trace_record *records, int number)
{
    assert_int_equal(count, number);
    for (int i = 0; i < number; i++) {
        assert_int_equal(told[i].kind, records[i].kind);
        if (records[i].kind != SEGALLOC_RECORD_ALLOCATE && records[i].kind != SEGALLOC_RECORD_FREE)
            assert_int_equal(told[i].id, records[i].id);
        assert_int_equal(told[i].size, records[i].size);
    }
}

#define EXPECT(...)                                       \
    expect((struct segalloc_trace_record[]){__VA_ARGS__}, \
        sizeof(struct segalloc_trace_record[]){__VA_ARGS__} / sizeof *told)
#define RECORD(what, of, much) {.kind = SEGALLOC_RECORD_##what, .id = (of), .size = (much)}
#define TURN(what, much) {.kind = SEGALLOC_RECORD_TURN, .id = SEGALLOC_TURN_##what, .size = (much)}

static void growth_is_a_step_of_its_own(void **state)
{
    (void)state;
    struct sg_core *core = start("free_sync:strict", MIB(64));
    (void)sg_core_trim(core, 0, 0);
    CUdeviceptr block = allocate(core, 0, MIB(4));
    forget();
    release(core, 0, block);
    (void)allocate(core, 0, MIB(6));
    EXPECT(RECORD(FREE, 0, MIB(4)), RECORD(SLOW_BEGIN, 0, MIB(6)), RECORD(SLOW_STEP, 0, CUDA_SUCCESS),
        RECORD(ALLOCATE, 0, MIB(6)));
    forget();
    assert_int_equal(ask(core, 0, MIB(60), &block), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(RECORD(SLOW_BEGIN, 0, MIB(60)), RECORD(SLOW_STEP, 0, CUDA_ERROR_NOT_FOUND), TURN(REGION, MIB(64)),
        RECORD(SLOW_STEP, 0, CUDA_ERROR_OUT_OF_MEMORY), RECORD(ALLOCATE_FAILURE, MIB(2), MIB(60)));
    stop(core);
}

static void test_what_goes_back(void **state)
{
    (void)state;
    struct sg_core *core = start("free_sync:strict,garbage_collection_threshold:0.5", MIB(64));
    CUdeviceptr small = allocate(core, 0, MIB(10)), huge = allocate(core, 0, MIB(40));
    forget();
    release(core, 0, huge);
    EXPECT(RECORD(FREE, 0, MIB(40)), TURN(RETIRE, 1), TURN(CUT, 1), TURN(GIVEN, 1));
    CUdeviceptr other = allocate(core, 0, MIB(24));
    release(core, 0, small);
    sg_core_pin(core, other, MIB(2));
    forget();
    (void)allocate(core, 0, MIB(12));
    EXPECT(RECORD(SLOW_BEGIN, 0, MIB(12)), TURN(GARBAGE, MIB(2)), TURN(CUT, 1), TURN(GIVEN, 1),
        RECORD(SLOW_STEP, 0, CUDA_SUCCESS), RECORD(ALLOCATE, 0, MIB(12)));
    forget();
    sg_core_pin(core, other, MIB(2) + 1);
    sg_core_pin(core, other, MIB(1));
    assert_int_equal(count, 1); /* nothing new is told of what was asked for before */
    assert_int_equal(told[0].kind, SEGALLOC_RECORD_PIN);
    assert_int_equal(told[0].size, 2);
    forget();
    (void)sg_core_trim(core, 0, 0);
    EXPECT(RECORD(EMPTY_CACHE, 0, 0), TURN(CUT, 4), TURN(GIVEN, 1));
    stop(core);
}

/* What is held beyond a limit that was lowered goes back before anything is made: pages that are moved leave as much
   held as there was. */
static void test_lowered_limit(void **state)
{
    (void)state;
    struct sg_core *core = start("free_sync:strict", MIB(154));
    CUdeviceptr large = allocate(core, 0, MIB(50)), other = allocate(core, 0, MIB(30));
    assert_int_equal(sg_core_set_limit(core, 0, MIB(76)), MIB(76));
    release(core, 0, large);
    release(core, 0, other);
    forget();
    (void)allocate(core, 0, MIB(48)); /* more than half of the limit: a page of its own */
    assert_int_equal(told[1].id, SEGALLOC_TURN_GARBAGE);
    assert_int_equal(told[1].size, MIB(4));
    assert_true(sg_device_known(core, 0)->accounts.usage.reserved.now <= MIB(76));
    stop(core);
}

/* Ranges that different streams own are joined once both streams' work is complete, by whoever looks next. */
static void test_joined_by_a_question(void **state)
{
    (void)state;
    struct sg_core *core = start("free_sync:stream", MIB(512));
    const struct sg_stream_id ids[2] = {{.key = 1}, {.key = 2}};
    CUdeviceptr first = allocate(core, 0, MIB(64)); /* the device is there */
    sg_slot one = sg_core_slot(core, 0, &ids[0]), two = sg_core_slot(core, 0, &ids[1]);
    release(core, 0, first);
    CUdeviceptr a = allocate(core, one, MIB(8)), b = allocate(core, two, MIB(8));
    size_t available = MIB(1), total = MIB(512);
    struct sg_vector_clock clock;
    release(core, one, a);
    release(core, two, b);
    sg_core_mem_info(core, 0, &available, &total);
    strict_complete(UINT32_MAX);
    sg_core_context_clock(core, 0, NULL, &clock);
    sg_core_completed(core, 0, &clock);
    forget();
    sg_core_mem_info(core, 0, &available, &total);
    EXPECT(RECORD(MERGE, 0, 0));
    forget();
    sg_core_mem_info(core, 0, &available, &total);
    assert_int_equal(count, 0);
    stop(core);
}

/* A question whether memory is plentiful leaves no trace, and the failure of a modest request is no refusal. */
static void test_modest_failure_is_no_refusal(void **state)
{
    (void)state;
    const struct sg_tag modest = {.modest = true};
    for (int fixed = 0; fixed < 2; fixed++) {
        struct sg_core *core = start(fixed ? "expandable_segments:False" : "free_sync:strict", MIB(64));
        struct sg_stats stats;
        CUdeviceptr block;
        assert_true(sg_core_is_plentiful(core, 0, MIB(20)));
        assert_int_equal(sg_core_malloc(core, 0, MIB(20), &modest, &block), CUDA_SUCCESS);
        forget();
        assert_true(sg_core_is_plentiful(core, 0, MIB(31)));
        assert_false(sg_core_is_plentiful(core, 0, MIB(32))); /* 52 of 64 */
        assert_false(sg_core_is_plentiful(core, 0, MIB(65))); /* more than there is */
        assert_int_equal(count, 0);
        strict_fail_at(1, /* for_ever */ true, CUDA_ERROR_OUT_OF_MEMORY); /* others have the rest of the card */
        assert_int_not_equal(sg_core_malloc(core, 0, MIB(24), &modest, &block), CUDA_SUCCESS);
        strict_fail_at(0, false, CUDA_SUCCESS);
        assert_int_equal(told[0].kind, SEGALLOC_RECORD_SLOW_BEGIN);
        assert_int_equal(told[count - 1].id, SEGALLOC_TURN_LEFT);
        assert_int_equal(told[count - 1].size, MIB(24));
        assert_true(sg_core_stats(core, 0, &stats));
        assert_int_equal(stats.value[SG_STAT_refused], 0);
        assert_int_equal(ask(core, 0, MIB(32), &block), CUDA_SUCCESS);
        stop(core);
    }
}

static void test_fixed_segments(void **state)
{
    (void)state;
    struct sg_core *core = start("expandable_segments:False", MIB(64));
    CUdeviceptr kept = allocate(core, 0, MIB(10)), cached = allocate(core, 0, MIB(30)), none;
    release(core, 0, cached);
    forget();
    assert_int_equal(ask(core, 0, MIB(60), &none), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(RECORD(SLOW_BEGIN, 0, MIB(60)), RECORD(ALLOCATE_FAILURE, MIB(6), MIB(60)));
    forget();
    sg_core_context_gone(core, 0, (CUcontext)(uintptr_t)1);
    assert_int_equal(count, 0); /* it had nothing */
    const struct sg_tag first = {.context = (CUcontext)(uintptr_t)2}, second = {.context = (CUcontext)(uintptr_t)3};
    assert_int_equal(sg_core_malloc(core, 0, MIB(10), &first, &cached), CUDA_SUCCESS);
    assert_int_equal(told[0].stream, 0);
    forget();
    assert_int_equal(sg_core_malloc(core, 0, MIB(10), &second, &none), CUDA_SUCCESS);
    EXPECT(RECORD(DEFINE_STREAM, 0, UINT64_C(1) << 32), RECORD(SLOW_BEGIN, 0, MIB(10)), RECORD(ALLOCATE, 0, MIB(10)));
    assert_int_equal(told[2].stream, told[0].stream);
    uint32_t stream = told[0].stream;
    forget();
    assert_int_equal(sg_core_set_limit(core, 0, MIB(60)), MIB(60));
    EXPECT(RECORD(LIMIT, 0, MIB(60))); /* which is of no context */
    forget();
    assert_int_equal(strict_driver.mem_free(none), CUDA_SUCCESS); /* as the driver does when the context ends */
    sg_core_context_gone(core, 0, second.context);
    EXPECT(RECORD(FREE, 0, MIB(10)), RECORD(CONTEXT_GONE, 0, 0));
    assert_int_equal(told[1].stream, stream);
    release(core, 0, kept);
    stop(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_is_a_step_of_its_own),
        cmocka_unit_test(test_what_goes_back),
        cmocka_unit_test(test_lowered_limit),
        cmocka_unit_test(test_joined_by_a_question),
        cmocka_unit_test(test_modest_failure_is_no_refusal),
        cmocka_unit_test(test_fixed_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
