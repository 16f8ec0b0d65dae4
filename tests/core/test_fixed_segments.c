/* Fixed segments: none is freed twice or kept when its context ends, whatever another thread does meanwhile. */
#include "segments_steps.h"

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
    sg_core_passthrough(core, 0, served, BYTES);
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

static CUresult no_thread(CUresult (*run)(void *user), void *user)
{
    (void)run;
    (void)user;
    return CUDA_ERROR_OPERATING_SYSTEM;
}

/* `alone`: without a thread that could wait. */
static void end_before_free(int answer, bool alone)
{
    struct sg_conf conf;
    strict_reset(1, 256 * SG_MIB, 2 * SG_MIB);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, "ipc:always", NULL, NULL), 0);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf,
        .driver = &strict_driver,
        .callbacks = {.enter_context = end_first, .leave_context = left}});
    assert_non_null(core);
    core->callbacks.aside = alone ? no_thread : NULL;
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
    end_before_free(-1, /* alone */ false);
    end_before_free(-1, /* alone */ true);
}

static void test_handle_comes_again_before_the_segment_is_freed(void **state)
{
    (void)state;
    end_before_free(0, /* alone */ false);
}

/* One of two contexts ends whose segments are still to be freed: they are the driver's, those of the other are freed. */
static void test_context_ends_with_frees_put_off(void **state)
{
    (void)state;
    start("ipc:always");
    CUdeviceptr block[4];
    for (int i = 0; i < 4; i++)
        block[i] = allocate(i < 2 ? first : second, BYTES);
    core->callbacks.aside = put_off;
    for (int i = 0; i < 4; i++)
        release(i < 2 ? first : second, block[i]);
    assert_int_equal(sg_core_trim(core, 0, 0), 4 * BYTES);
    assert_int_equal(strict_used(0), 4 * BYTES);
    sg_core_context_gone(core, 0, (CUcontext)(uintptr_t)0x3000); /* it has nothing here */
    end_in_driver(block, 2);
    sg_core_context_gone(core, 0, first);
    core->callbacks.aside = NULL;
    sg_core_trim(core, 0, 0);
    assert_int_equal(strict_used(0), 0);
    finish();
}

static CUresult not_yet(CUevent event)
{
    (void)event;
    return CUDA_ERROR_NOT_READY;
}

static CUresult no_event(CUevent *ret, unsigned flags)
{
    (void)ret;
    (void)flags;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult no_record(CUcontext context, CUevent event)
{
    (void)context;
    (void)event;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Where there can be no thread to wait in the driver, what has no work to wait for is freed by this one. */
static void test_frees_without_a_thread(void **state)
{
    (void)state;
    start("ipc:always");
    struct sg_driver older = strict_driver, busy = older, eventless = older, deaf = older, good = older;
    older.ctx_record_event = NULL;
    busy.event_synchronize = not_yet;
    eventless.event_create = no_event;
    deaf.ctx_record_event = no_record;
    const struct {
        const struct sg_driver *driver;
        uint64_t left;
    } list[] = {{&older, BYTES}, {&busy, 2 * BYTES}, {&eventless, 3 * BYTES}, {&deaf, 4 * BYTES}, {&good, 0}};
    core->callbacks.aside = no_thread;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        core->driver = list[i].driver;
        release(first, allocate(first, BYTES));
        sg_core_trim(core, 0, 0);
        assert_int_equal(strict_used(0), list[i].left);
    }
    sg_core_context_gone(core, 0, second);
    core->callbacks.aside = NULL;
    core->driver = &strict_driver;
    finish();
}

/* There are as many pools as contexts are followed; those beyond share the first one's. */
static void test_more_contexts_than_pools(void **state)
{
    (void)state;
    core = inspect_start("expandable_segments:False", UINT64_C(4) * SG_GIB);
    enum { MANY = SG_CONTEXTS_MAX + 8 };
    static CUdeviceptr block[MANY];
    for (uintptr_t i = 0; i < MANY; i++)
        block[i] = allocate((CUcontext)(i + 1), SMALL);
    assert_int_equal(LOCKED(core->device[0], sg_segments_pool_locked(core->device[0]->fixed, (CUcontext)(uintptr_t)3)),
        2);
    assert_int_equal(LOCKED(core->device[0],
                         sg_segments_pool_locked(core->device[0]->fixed, (CUcontext)(uintptr_t)MANY)),
        0);
    for (uintptr_t i = 0; i < MANY; i++)
        release((CUcontext)(i + 1), block[i]);
    finish();
}

static unsigned waits_for_second;

static CUresult count_waits(CUcontext context)
{
    waits_for_second += context == second;
    return CUDA_SUCCESS;
}

/* Another context may be using a block of a fixed segment. PyTorch's own allocator lets no recorded stream go unwaited
   for, whatever cudaFree does; a plain cudaFree waits for the block's context alone. */
static void test_who_is_waited_for(void **state)
{
    (void)state;
    static const struct {
        struct sg_tag tag;
        bool named, waits;
    } list[] = {
        {{.sync = SG_FREE_SYNC_STRICT, .torch = true}, true, true},
        {{.sync = SG_FREE_SYNC_STRICT, .torch = true}, false, false},
        {{.sync = SG_FREE_SYNC_STREAM, .torch = true}, true, true},
        {{.sync = SG_FREE_SYNC_EVENT, .user_rule = SG_USERS_RECORDED}, true, true},
        {{.sync = SG_FREE_SYNC_EVENT, .user_rule = SG_USERS_RECORDED}, false, false},
        {{.sync = SG_FREE_SYNC_STRICT, .user_rule = SG_USERS_RECORDED}, true, false},
        {{.sync = SG_FREE_SYNC_EVENT, .user_rule = SG_USERS_POSSIBLE}, true, false},
    };
    struct sg_driver counting = strict_driver;
    counting.ctx_synchronize_of = count_waits;
    start("expandable_segments:False");
    core->driver = &counting;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct sg_tag tag = list[i].tag;
        tag.context = first;
        CUdeviceptr address = allocate(first, BYTES);
        if (list[i].named)
            sg_core_used_cross_device(core, address);
        waits_for_second = 0;
        assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
        assert_int_equal(waits_for_second, list[i].waits);
    }
    core->driver = &strict_driver;
    finish();
}

/* As many segments as there may be, of a driver that has more. */
static CUdeviceptr next_address;

static CUresult alloc_anything(CUdeviceptr *ret, size_t bytes)
{
    *ret = next_address;
    next_address += bytes;
    return CUDA_SUCCESS;
}

static CUresult free_anything(CUdeviceptr address)
{
    (void)address;
    return CUDA_SUCCESS;
}

static void test_as_many_segments_as_there_may_be(void **state)
{
    (void)state;
    enum { SEGMENTS = 1 << 16 };
    struct sg_driver driver = strict_driver;
    struct sg_conf conf;
    struct sg_stats stats;
    CUdeviceptr block = 0;
    const struct sg_tag tag = {.context = first, .sync = SG_FREE_SYNC_COMPLETE};
    driver.mem_alloc = alloc_anything;
    driver.mem_free = free_anything;
    next_address = UINT64_C(0x7f0000000000);
    strict_reset(1, UINT64_C(1) << 40, 2 << 20);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, "ipc:always", NULL, NULL), 0);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver});
    for (int i = 0; i < SEGMENTS; i++)
        assert_int_equal(sg_core_malloc(core, 0, SMALL, &tag, &block), CUDA_SUCCESS);
    CUdeviceptr unused = 5;
    assert_int_equal(sg_core_malloc(core, 0, SMALL, &tag, &unused), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(unused, 5);
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_malloc(core, 0, SMALL, &tag, &unused), CUDA_SUCCESS);
    assert_int_equal(unused, block);
    assert_true(sg_core_stats(core, 0, &stats));
    assert_int_equal(stats.value[SG_STAT_segments], SEGMENTS);
    sg_core_destroy(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address_comes_before_the_news),
        cmocka_unit_test(test_driver_serves_there),
        cmocka_unit_test(test_others_keep_theirs),
        cmocka_unit_test(test_context_ends_before_its_segment_is_freed),
        cmocka_unit_test(test_handle_comes_again_before_the_segment_is_freed),
        cmocka_unit_test(test_context_ends_with_frees_put_off),
        cmocka_unit_test(test_frees_without_a_thread),
        cmocka_unit_test(test_more_contexts_than_pools),
        cmocka_unit_test(test_who_is_waited_for),
        cmocka_unit_test(test_as_many_segments_as_there_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
