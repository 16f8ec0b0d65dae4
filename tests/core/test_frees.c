/* A free that waits as the driver does waits for the right contexts, and concludes nothing about others. */
#include "frees_steps.h"

static void is_for_the_context_alone_where_there_is_one(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    scene_free(scene_allocate(0), SG_FREE_SYNC_STRICT);
    assert_int_equal(scene.waited, first_bit);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* The block is of another context than the calling thread's. */
static void is_for_the_blocks_context(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    CUdeviceptr address = scene_allocate(0);
    scene.current = scene_add_context(2, 0);
    scene_free(address, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene.waited, first_bit);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK); /* the other may be using it */
}

/* Where no event tells, and there is no thread to wait for them, whoever frees waits for the others too: also for the
   context that was there first. */
static void is_for_all_contexts_where_nothing_else_tells(void **state)
{
    (void)state;
    (void)scene_add_context(1, 0);
    scene.core->callbacks.begin_aside = NULL;
    scene.current = scene_add_context(2, 0);
    scene_free(scene_allocate(0), SG_FREE_SYNC_STRICT);
    assert_int_equal(scene.waited, first_bit | second_bit);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* Of two blocks so close that a quick look finds the first in place of the second. */
static void smallest_blocks_are_told_apart(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(3, 1);
    const struct sg_tag tag = {.context = scene.current, .sync = SG_FREE_SYNC_STRICT};
    CUdeviceptr block[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(sg_core_malloc(scene.core, 0, SG_UNIT, &tag, &block[i]), CUDA_SUCCESS);
    for (int i = 1; i < 4; i += 2) {
        assert_int_equal(block[i], block[i - 1] + SG_UNIT);
        sg_core_used_cross_device(scene.core, block[i]);
        assert_int_equal(sg_core_free(scene.core, block[i], &tag), CUDA_SUCCESS);
    }
    assert_int_equal(scene_pending_bytes(), 2 * SG_UNIT);
    for (int i = 0; i < 4; i += 2)
        assert_int_equal(sg_core_free(scene.core, block[i], &tag), CUDA_SUCCESS);
    assert_int_equal(scene_pending_bytes(), 2 * SG_UNIT);
}

static void wait_for_one_context_tells_nothing_of_others(void **state)
{
    (void)state;
    CUcontext here = scene.current = scene_add_context(1, 0), there = scene_add_context(2, 0);
    sg_slot own = scene_add_stream(1, 0, here), other = scene_add_stream(2, 0, there);
    CUdeviceptr address = scene_allocate(0);
    work(own);
    work(other);
    struct sg_after after_own = scene_freed(own), after_other = scene_freed(other);
    scene_free(address, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene.waited, first_bit);
    assert_true(scene_is_complete(after_own));
    assert_false(scene_is_complete(after_other));
}

/* What was waited for may have waited for others: the host may show what is theirs to anybody. */
static void wait_tells_the_host_of_others(void **state)
{
    (void)state;
    CUcontext here = scene.current = scene_add_context(1, 0), there = scene_add_context(2, 0);
    sg_slot own = scene_add_stream(1, 0, here), other = scene_add_stream(2, 0, there);
    struct sg_vector_clock unused;
    CUdeviceptr address = scene_allocate(0);
    sg_core_clock(scene.core, 0, own, &unused); /* in an event call: others are believed to be seen in any case */
    uint64_t alloc_seq = LOCKED(scene.device, sg_clocks_tick_locked(scene.device));
    assert_int_equal(users_of(scene.device, other, alloc_seq, SG_USERS_POSSIBLE), 0);
    scene_free(address, SG_FREE_SYNC_STRICT);
    work(own);
    assert_int_equal(users_of(scene.device, other, alloc_seq, SG_USERS_POSSIBLE), sg_slot_bit(own));
}

static sg_slot busy;

static void work_meanwhile(void)
{
    work(busy);
}

static void wait_tells_nothing_of_work_meanwhile(void **state)
{
    (void)state;
    for (unsigned contexts = 1; contexts <= 2; contexts++) {
        scene.current = scene_context(1);
        (void)scene_add_context(contexts, 0);
        busy = scene_add_stream(1, 0, scene.current);
        (void)scene_add_stream(2, 0, scene.current);
        CUdeviceptr address = scene_allocate(0);
        work(busy);
        struct sg_after before = scene_freed(busy);
        scene.meanwhile = work_meanwhile;
        scene_free(address, SG_FREE_SYNC_STRICT);
        assert_true(scene_is_complete(before));
        assert_false(scene_is_complete(scene_freed(busy)));
    }
}

static void free_fails(CUdeviceptr address, sg_slot slot, uint64_t call)
{
    const struct sg_tag tag = {.context = scene.current, .sync = SG_FREE_SYNC_STRICT};
    struct sg_stats stats;
    work(slot);
    struct sg_after after = scene_freed(slot);
    strict_fail_at(call, false, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(sg_core_free(scene.core, address, &tag), CUDA_ERROR_ILLEGAL_ADDRESS);
    strict_fail_at(0, false, CUDA_SUCCESS);
    assert_true(sg_core_stats(scene.core, 0, &stats));
    assert_int_equal(stats.value[SG_STAT_allocations], 1);
    if (call == 1)
        assert_false(scene_is_complete(after));
}

static void wait_that_fails_frees_nothing_and_tells_nothing(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    CUdeviceptr address = scene_allocate(0);
    sg_slot slot = scene_add_stream(1, 0, scene.current);
    (void)scene_add_stream(2, 0, scene.current);
    free_fails(address, slot, 1);
    (void)scene_add_context(2, 0);
    free_fails(address, slot, 1);
    for (unsigned i = 3; i <= SG_CONTEXTS_MAX + 1; i++) /* more than events could tell of */
        (void)scene_add_context(i, 0);
    free_fails(address, slot, 1);
    free_fails(address, slot, 2);
    scene_free(address, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* The clock of a context says of what is freed after all work only where there is no other. */
static void wait_for_one_of_two_contexts_is_not_for_all_work(void **state)
{
    (void)state;
    CUcontext here = scene.current = scene_add_context(1, 0), there = scene_add_context(2, 1);
    struct sg_vector_clock clock;
    scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
    sg_core_context_clock(scene.core, 0, here, &clock);
    sg_core_completed(scene.core, 0, &clock);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    sg_core_context_forget(scene.core, there);
    sg_core_context_clock(scene.core, 0, here, &clock);
    sg_core_completed(scene.core, 0, &clock);
    assert_int_equal(scene_pending_bytes(), 0);
}

static void wait_says_whether_it_was_for_all(void **state)
{
    (void)state;
    bool all;
    scene.current = scene_add_context(1, 0);
    CUdeviceptr address = scene_allocate(0);
    assert_int_equal(sg_core_wait(scene.core, address, scene.current, &all), CUDA_SUCCESS);
    assert_true(all);
    (void)scene_add_context(3, 1);
    assert_int_equal(sg_core_wait(scene.core, address, scene.current, &all), CUDA_SUCCESS);
    assert_true(all); /* the other device has had nothing of it */
    (void)scene_add_context(2, 0);
    scene.waited = 0;
    assert_int_equal(sg_core_wait(scene.core, address, scene.current, &all), CUDA_SUCCESS);
    assert_false(all);
    assert_int_equal(scene.waited, first_bit);
    assert_int_equal(sg_core_wait_for_all(scene.core), CUDA_SUCCESS);
    assert_int_equal(scene.waited, first_bit | second_bit | third_bit);
}

/* What was used on a stream that is not followed waits for all work, whatever stream it is of. */
static void stream_that_is_not_followed_is_waited_for(void **state)
{
    (void)state;
    sg_slot slot = scene_add_stream(1, 0, NULL);
    CUdeviceptr address = scene_allocate(slot);
    assert_int_equal(sg_core_record_stream(scene.core, address, 0), CUDA_SUCCESS);
    scene_free(address, SG_FREE_SYNC_STREAM);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
}

static atomic_bool begun, over;
static bool over_meanwhile;

static void *end_context(void *context)
{
    atomic_store(&begun, true);
    sg_core_context_ending(scene.core, context, true);
    atomic_store(&over, true);
    return NULL;
}

static pthread_t ending;

/* The other thread has all the time that it could need to go on, if it did. */
static void end_meanwhile(void)
{
    if (pthread_create(&ending, NULL, end_context, scene.current))
        return;
    while (!atomic_load(&begun))
        sched_yield();
    for (int i = 0; i < 2000; i++)
        sched_yield();
    over_meanwhile = atomic_load(&over);
}

static void context_does_not_end_during_a_call_that_names_it(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
    scene.meanwhile = end_meanwhile;
    (void)sg_device_ask(scene.device, SG_ASK_FENCE);
    assert_int_equal(pthread_join(ending, NULL), 0);
    assert_true(atomic_load(&over));
    assert_false(over_meanwhile);
    sg_core_context_ending(scene.core, scene.current, false);
}

/* Behind pages that are in use. */
static void what_only_waits_for_others_counts_as_free(void **state)
{
    CUdeviceptr block[3];
    size_t free_bytes = 0, total_bytes = 0;
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(2, 0);
    for (int i = 0; i < 3; i++)
        block[i] = scene_allocate(0);
    scene_free(block[2], SG_FREE_SYNC_STRICT);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    sg_core_mem_info(scene.core, 0, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, SCENE_BLOCK);
}

/* One context is known, and another frees: it is waited for as that which the block is of, and so is the other. */
static void context_that_is_not_known(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    CUdeviceptr address = scene_allocate(0);
    scene.current = scene_context(2);
    scene_free(address, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene.waited, first_bit);
    assert_int_equal(scene_pending_bytes(), 0);
}

static void wait_says_what_went_wrong(void **state)
{
    (void)state;
    bool all = true;
    scene.current = scene_add_context(1, 0);
    CUdeviceptr address = scene_allocate(0);
    strict_fail_at(1, false, CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(sg_core_wait(scene.core, address, scene.current, &all), CUDA_ERROR_LAUNCH_FAILED);
    strict_fail_at(0, false, CUDA_SUCCESS);
    assert_false(all);
    scene_free(address, SG_FREE_SYNC_COMPLETE);
}

/* Where no event tells of all work a thread of ours waits for it. */
static void stream_that_no_event_tells_of(void **state)
{
    (void)state;
    const struct sg_tag tag = {.context = scene.current = scene_add_context(1, 0), .sync = SG_FREE_SYNC_STREAM,
        .torch = true};
    (void)scene_add_context(2, 0);
    CUdeviceptr address = scene_allocate(0);
    assert_int_equal(sg_core_free(scene.core, address, &tag), CUDA_SUCCESS);
    assert_int_equal(scene.waited, 0);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    apply(scene.core, 0, SEGALLOC_RECORD_DONE, 0, 0);
}

/* A step of an order that nobody follows is none. */
static void step_of_no_stream(void **state)
{
    (void)state;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_STREAM, .in_order = true};
    assert_int_equal(sg_core_free(scene.core, scene_allocate(0), &tag), CUDA_SUCCESS);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
}

static uint64_t reserved(void)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(scene.core, 0, &stats));
    return stats.value[SG_STAT_reserved_bytes];
}

static CUdeviceptr allocate_huge(size_t bytes)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address = 0;
    assert_int_equal(sg_core_malloc(scene.core, 0, bytes, &tag, &address), CUDA_SUCCESS);
    return address;
}

/* Its page goes back at once, unless it is to stay where it is. */
static void huge_block(void **state)
{
    (void)state;
    CUdeviceptr address = allocate_huge(300 << 20);
    scene_free(address, SG_FREE_SYNC_COMPLETE);
    assert_int_equal(reserved(), 0);
    address = allocate_huge(300 << 20);
    sg_core_pin(scene.core, address, 1);
    scene_free(address, SG_FREE_SYNC_COMPLETE);
    assert_int_equal(reserved(), 300 << 20);
    assert_int_equal(sg_core_trim(scene.core, 0, 0), 0);
}

/* A smaller one stands where a larger one was: behind it are addresses of ours with nothing there. */
static void behind_a_huge_block(void **state)
{
    (void)state;
    struct sg_block_info info;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr larger = allocate_huge(400 << 20);
    scene_free(larger, SG_FREE_SYNC_COMPLETE);
    CUdeviceptr address = allocate_huge(300 << 20), behind = address + (350 << 20);
    assert_int_equal(address, larger);
    assert_true(sg_core_owns(scene.core, behind));
    assert_int_equal(sg_core_free(scene.core, behind, &tag), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_core_block(scene.core, behind, &info), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_core_block(scene.core, address + (299 << 20), &info), CUDA_SUCCESS);
    sg_core_used_cross_device(scene.core, behind);
    sg_core_pin(scene.core, behind, 1);
    scene_free(address, SG_FREE_SYNC_COMPLETE);
    assert_int_equal(reserved(), 0); /* nothing was pinned */
}

/* A tag that is all zeros names no mode: nobody has said that the work on the block is complete. */
static void without_a_mode_nothing_is_freed(void **state)
{
    (void)state;
    const struct sg_tag unset = {0};
    struct sg_block_info info;
    CUdeviceptr address = allocate_huge(300 << 20);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        _exit(sg_core_free(scene.core, address, &unset) != CUDA_ERROR_NOT_SUPPORTED ||
            sg_core_block(scene.core, address, &info) != CUDA_SUCCESS);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
#ifdef CORE_ASSERTS
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#endif
    assert_int_equal(unset.user_rule, SG_USERS_POSSIBLE); /* the rule by which most is waited for */
    scene_free(address, SG_FREE_SYNC_COMPLETE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(is_for_the_context_alone_where_there_is_one),
        TEST(is_for_the_blocks_context),
        TEST(without_a_mode_nothing_is_freed),
        cmocka_unit_test_setup_teardown(is_for_all_contexts_where_nothing_else_tells, scene_start_on_older_driver,
            scene_stop),
        TEST(smallest_blocks_are_told_apart),
        TEST(wait_for_one_context_tells_nothing_of_others),
        TEST(wait_tells_the_host_of_others),
        TEST(wait_tells_nothing_of_work_meanwhile),
        TEST(wait_that_fails_frees_nothing_and_tells_nothing),
        TEST(wait_for_one_of_two_contexts_is_not_for_all_work),
        TEST(wait_says_whether_it_was_for_all),
        TEST(stream_that_is_not_followed_is_waited_for),
        TEST(context_does_not_end_during_a_call_that_names_it),
        TEST(what_only_waits_for_others_counts_as_free),
        TEST(context_that_is_not_known),
        TEST(wait_says_what_went_wrong),
        cmocka_unit_test_setup_teardown(stream_that_no_event_tells_of, scene_start_on_older_driver, scene_stop),
        TEST(step_of_no_stream),
        TEST(huge_block),
        TEST(behind_a_huge_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
