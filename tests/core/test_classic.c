/* Fixed segments go with the context that they were made in, and another thread may end it at any time: the driver
   gives the addresses out again before the core is told. What lives there then is the new owner's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core.h"
#include "inspect.h"
#include "size.h"
#include "strict_driver.h"

enum { BYTES = 20 * SG_MIB, SMALL = 3000 };

static const CUcontext first = (CUcontext)(uintptr_t)0x1000, second = (CUcontext)(uintptr_t)0x2000;
static struct sg_core *core;

static CUdeviceptr allocate(CUcontext context, size_t bytes)
{
    const struct sg_tag tag = {.context = context, .sync = SG_FREE_SYNC_AUTO};
    CUdeviceptr address = 0;
    assert_int_equal(sg_core_malloc(core, 0, bytes, &tag, &address), CUDA_SUCCESS);
    return address;
}

static void release(CUcontext context, CUdeviceptr address)
{
    const struct sg_tag tag = {.context = context, .sync = SG_FREE_SYNC_AUTO};
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
}

static void expect_block(CUdeviceptr address, CUcontext context, size_t bytes)
{
    struct sg_block_info info;
    assert_int_equal(sg_core_block(core, address, &info), CUDA_SUCCESS);
    assert_int_equal(info.base, address);
    assert_int_equal(info.bytes, bytes);
    assert_ptr_equal(info.context, context);
}

static uint64_t statistic(enum sg_stat which)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, 0, &stats));
    return stats.value[which];
}

static void start(const char *conf)
{
    core = inspect_start(conf, 256 * SG_MIB);
    sg_core_context_seen(core, 0, first);
    sg_core_context_seen(core, 0, second);
}

/* All is given back, and nothing was freed that was not ours to free. */
static void finish(void)
{
    const char *what;
    sg_core_trim(core, 0, 0);
    assert_int_equal(statistic(SG_STAT_reserved_bytes), 0);
    assert_int_equal(statistic(SG_STAT_allocations), 0);
    assert_int_equal(strict_used(0), 0);
    sg_core_destroy(core);
    if (strict_broken(&what))
        fail_msg("a rule of the driver was broken: %s", what);
    assert_int_equal(strict_leaks(), 0);
}

/* The driver has freed the segments of a context that ends. */
static void end_in_driver(const CUdeviceptr *segment, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(strict_driver.mem_free(segment[i]), CUDA_SUCCESS);
}

/* Blocks that lived and a segment that was idle; all addresses are another context's before the core hears of the
   end. */
static void test_address_comes_before_the_news(void **state)
{
    (void)state;
    start("expandable_segments:False");
    CUdeviceptr old[3] = {allocate(first, BYTES), allocate(first, BYTES), allocate(first, SMALL)};
    release(first, old[1]);
    end_in_driver(old, 3);
    CUdeviceptr block[2] = {allocate(second, BYTES), allocate(second, BYTES)}, small = allocate(second, SMALL);
    assert_int_equal(block[0], old[0]);
    assert_int_equal(block[1], old[1]);
    assert_int_equal(small, old[2]);
    assert_int_equal(statistic(SG_STAT_allocations), 3);
    assert_int_equal(statistic(SG_STAT_reserved_bytes), strict_used(0));
    sg_core_context_gone(core, 0, first);
    expect_block(block[0], second, BYTES);
    expect_block(block[1], second, BYTES);
    expect_block(small, second, SMALL);
    release(second, block[0]);
    assert_int_equal(allocate(second, BYTES), block[0]); /* its segment is known */
    release(second, block[0]);
    release(second, block[1]);
    release(second, small);
    finish();
}

/* The same where the driver serves somebody itself. */
static void test_driver_serves_there(void **state)
{
    (void)state;
    CUdeviceptr served;
    start("ipc:always");
    CUdeviceptr old = allocate(first, BYTES), kept = allocate(second, BYTES);
    end_in_driver(&old, 1);
    assert_int_equal(strict_driver.mem_alloc(&served, BYTES), CUDA_SUCCESS);
    assert_int_equal(served, old);
    sg_core_passed_on(core, 0, served, BYTES);
    assert_false(sg_core_owns(core, served)); /* its free is the driver's */
    sg_core_context_gone(core, 0, first);
    expect_block(kept, second, BYTES);
    assert_int_equal(strict_driver.mem_free(served), CUDA_SUCCESS);
    release(second, kept);
    finish();
}

/* Of two contexts that have idle segments one ends: the other one's stay. */
static void test_others_keep_theirs(void **state)
{
    (void)state;
    start("ipc:always");
    CUdeviceptr old = allocate(first, BYTES), kept = allocate(second, BYTES);
    release(first, old);
    release(second, kept);
    end_in_driver(&old, 1);
    sg_core_context_gone(core, 0, first);
    assert_int_equal(statistic(SG_STAT_reserved_bytes), BYTES);
    assert_int_equal(allocate(second, BYTES), kept);
    release(second, kept);
    finish();
}

static struct {
    CUdeviceptr old, block;
    int answer;
    unsigned begun, ended;
} end;

/* Before a segment of the first context is freed that one ends, and its address becomes another's. */
static int end_first(CUcontext context)
{
    end.begun++;
    if (context != first || !end.old)
        return context == first ? end.answer : 0;
    end_in_driver(&end.old, 1);
    end.old = 0;
    if (end.answer == 0) /* one of the same handle is there since, so that it can be made current */
        sg_core_context_gone(core, 0, first);
    end.block = allocate(second, BYTES);
    return end.answer;
}

static void left(int use)
{
    (void)use;
    end.ended++;
}

static void end_before_free(int answer)
{
    struct sg_conf conf;
    strict_reset(1, 256 * SG_MIB, 2 * SG_MIB);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, "ipc:always", NULL, NULL), 0);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &strict_driver, .enter_context = end_first,
        .leave_context = left});
    assert_non_null(core);
    sg_core_context_seen(core, 0, first);
    sg_core_context_seen(core, 0, second);
    CUdeviceptr old = allocate(first, BYTES);
    release(first, old);
    end.old = old;
    end.answer = answer;
    end.begun = end.ended = 0;
    sg_core_trim(core, 0, 0);
    assert_int_equal(end.block, old);
    sg_core_context_gone(core, 0, first);
    expect_block(end.block, second, BYTES);
    assert_int_equal(strict_used(0), BYTES);
    assert_true(end.begun > 0 && (answer < 0 || end.begun == end.ended)); /* each that began is left */
    release(second, end.block);
    finish();
}

static void test_context_ends_before_its_segment_is_freed(void **state)
{
    (void)state;
    end_before_free(-1);
}

static void test_handle_comes_again_before_the_segment_is_freed(void **state)
{
    (void)state;
    end_before_free(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address_comes_before_the_news), cmocka_unit_test(test_driver_serves_there),
        cmocka_unit_test(test_others_keep_theirs), cmocka_unit_test(test_context_ends_before_its_segment_is_freed),
        cmocka_unit_test(test_handle_comes_again_before_the_segment_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
