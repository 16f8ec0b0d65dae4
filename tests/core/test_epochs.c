/* Frees that take effect after all work that there is: whether events tell of all of it, and which of what is freed
   they tell of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inspect.h"
#include "scene.h"
#include "strict_driver.h"
#include "locked.h"

static CUdeviceptr later; /* is freed while the driver is being called */

static void free_later(void)
{
    scene_free(later, SG_FREE_SYNC_EVENT);
}

static void free_later_beside_others(void)
{
    CUcontext before = scene.current;
    scene.current = scene_context(1);
    scene_free(later, SG_FREE_SYNC_STRICT);
    scene.current = before;
}

static void ask(enum sg_ask how)
{
    (void)sg_device_ask(scene.device, how);
}

/* Whether a free is to take effect later; else it has waited. */
static bool is_put_off(CUdeviceptr address)
{
    scene.waited = 0;
    scene_free(address, SG_FREE_SYNC_EVENT);
    bool pending = scene_pending_bytes() != 0;
    assert_true(pending || scene.waited);
    return pending;
}

/* The epoch. */

static void epoch_covers_what_was_freed_before_its_events(void **state)
{
    (void)state;
    CUdeviceptr first = scene_allocate(0);
    later = scene_allocate(0);
    scene_free(first, SG_FREE_SYNC_EVENT);
    scene.meanwhile = free_later;
    ask(SG_ASK_FENCE);
    assert_int_equal(scene_pending_bytes(), 2 * SCENE_BLOCK);
    strict_complete(UINT32_MAX);
    ask(SG_ASK_QUERY);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    ask(SG_ASK_WAIT); /* it is still owed an event */
    assert_int_equal(scene_pending_bytes(), 0);
}

/* One of its events could not be recorded: those that were tell of a part. */
static void epoch_with_an_event_too_few_is_none(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(2, 0);
    scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
    strict_fail_at(4, false, CUDA_ERROR_ILLEGAL_ADDRESS); /* two are made, and recorded */
    ask(SG_ASK_FENCE);
    assert_true(strict_failed(NULL));
    assert_int_equal(scene.over_contexts, 2);
    strict_complete(UINT32_MAX);
    ask(SG_ASK_QUERY);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    ask(SG_ASK_FENCE);
    strict_complete(UINT32_MAX);
    ask(SG_ASK_QUERY);
    assert_int_equal(scene_pending_bytes(), 0);
}

static sg_slot busy;

static void give_work(void)
{
    sg_core_slot_submitted(scene.core, 0, busy);
    scene.meanwhile = give_work;
}

/* With each try more work of a stream of the first context is complete, which frees nothing. An allocation ends all the same. */
static void epoch_that_never_begins_is_not_waited_for_long(void **state)
{
    enum { LARGE = 300 << 20, TRIES = SG_FENCES + SG_SLOTS };
    const struct sg_tag tag = {.context = scene_context(1), .sync = SG_FREE_SYNC_EVENT};
    CUdeviceptr large, more;
    (void)state;
    scene.current = scene_add_context(1, 0);
    scene.unrecordable = scene_add_context(2, 0);
    assert_int_equal(sg_core_malloc(scene.core, 0, LARGE, &tag, &large), CUDA_SUCCESS);
    scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
    busy = scene_add_stream(7, 0, scene.current);
    scene.prompt = true;
    give_work();
    assert_int_equal(sg_core_malloc(scene.core, 0, LARGE, &tag, &more), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    assert_in_range(scene.over_contexts, 2 * TRIES, 4 * TRIES);
    scene.unrecordable = NULL;
    scene.meanwhile = NULL;
    scene_free(large, SG_FREE_SYNC_EVENT);
    assert_int_equal(sg_core_malloc(scene.core, 0, LARGE, &tag, &more), CUDA_SUCCESS);
}

/* Its last event goes with a context: nobody will ask about it any more. */
static void epoch_ends_with_the_last_context_that_it_waits_for(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    CUcontext other = scene_add_context(3, 1);
    scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
    ask(SG_ASK_FENCE);
    assert_ptr_equal(scene.made_in, other);
    CUevent event = scene.latest;
    strict_complete(1);
    ask(SG_ASK_QUERY);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    sg_core_context_gone(scene.core, 1, other);
    (void)strict_driver.event_destroy(event);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* No event is owed: no work is left that could use the memory, whatever goes on on another device. */
static void nothing_pends_without_a_context_of_the_device(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(3, 1);
    scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    sg_core_context_gone(scene.core, 0, scene.current);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* Drivers before CUDA 12.5 record no events over contexts: a thread of its own waits. */
static void nobody_who_frees_waits_on_an_older_driver(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    CUdeviceptr address = scene_allocate(0);
    scene.waited = 0;
    scene_free(address, SG_FREE_SYNC_EVENT);
    assert_int_equal(scene.waited, 0);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    ask(SG_ASK_FENCE);
    assert_non_null(scene.aside);
    assert_int_equal(scene.aside(scene.user), CUDA_SUCCESS);
    assert_int_equal(scene.waited, 1 << 1);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* More contexts than can be kept: whoever frees waits for those that are known. */
static void contexts_too_many_are_not_covered(void **state)
{
    (void)state;
    scene.current = scene_context(1);
    CUdeviceptr first = scene_allocate(0), second = scene_allocate(0);
    for (unsigned i = 1; i <= SG_CONTEXTS_MAX; i++)
        (void)scene_add_context(i, 0);
    assert_true(is_put_off(first));
    (void)scene_add_context(SG_CONTEXTS_MAX + 1, 0);
    scene.waited = 0;
    scene_free(second, SG_FREE_SYNC_EVENT);
    assert_int_equal(scene.waited, UINT64_MAX);
}

/* Where no event can tell, a thread of its own waits for every context, and learns nothing of what is freed
   meanwhile. */
static void wait_aside_is_for_all_contexts_and_what_was_freed_before(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(2, 0);
    (void)scene_add_context(3, 1);
    CUdeviceptr first = scene_allocate(0);
    later = scene_allocate(0);
    scene_free(first, SG_FREE_SYNC_STRICT);
    assert_int_equal(scene.waited, 1 << 1);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    ask(SG_ASK_FENCE);
    assert_non_null(scene.aside);
    strict_fail_at(2, false, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(scene.aside(scene.user), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    scene.waited = 0;
    scene.meanwhile = free_later_beside_others;
    assert_int_equal(scene.aside(scene.user), CUDA_SUCCESS);
    assert_int_equal(scene.waited, 1 << 1 | 1 << 2 | 1 << 3);
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    assert_int_equal(scene.aside(scene.user), CUDA_SUCCESS);
    assert_int_equal(scene_pending_bytes(), 0);
}

/* Where the driver's events tell of contexts, or there is no thread for it, nobody waits aside. */
static void nobody_waits_aside_without_need(void **state)
{
    (void)state;
    assert_false(sg_fences_can_wait(scene.device));
}

/* In no order, and with nothing that could tell later, a free waits for its own context first and then for the others. */
static void free_waits_where_nothing_tells(void **state)
{
    (void)state;
    scene.core->callbacks.begin_aside = NULL;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(2, 0);
    CUdeviceptr address = scene_allocate(0);
    scene.waited = 0;
    scene_free(address, SG_FREE_SYNC_STREAM);
    assert_int_equal(scene.waited, 1 << 1 | 1 << 2);
    assert_int_equal(scene_pending_bytes(), 0);
}

static void nobody_waits_aside_without_a_thread(void **state)
{
    (void)state;
    scene.core->callbacks.begin_aside = NULL;
    assert_false(sg_fences_can_wait(scene.device));
}

/* With more contexts than can be kept nobody can wait for all of them. */
static void contexts_too_many_are_not_waited_for_aside(void **state)
{
    (void)state;
    assert_true(sg_fences_can_wait(scene.device));
    for (unsigned i = 1; i <= SG_CONTEXTS_MAX + 1; i++)
        (void)scene_add_context(i, 0);
    assert_false(sg_fences_can_wait(scene.device));
}

/* Whoever asks for memory to be given back waits for it, where no event tells by a thread of its own, and through
   `aside` where there is one. */
static unsigned asides;

static CUresult aside(CUresult (*run)(void *user), void *user)
{
    asides++;
    return run(user);
}

static CUresult aside_in_vain(CUresult (*run)(void *user), void *user)
{
    (void)run;
    (void)user;
    asides++;
    return CUDA_ERROR_NOT_READY;
}

static void trim_waits_where_no_event_tells(void **state)
{
    static CUresult (*const how[])(CUresult (*run)(void *user), void *user) = {NULL, aside_in_vain, aside};
    (void)state;
    scene.current = scene_add_context(1, 0);
    (void)scene_add_context(2, 0);
    for (int i = 0; i < 3; i++) {
        scene.core->callbacks.aside = how[i];
        scene_free(scene_allocate(0), SG_FREE_SYNC_STRICT);
        assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
        asides = 0;
        (void)sg_core_trim(scene.core, 0, 0);
        assert_true(i == 0 ? asides == 0 : asides > 0);
        assert_int_equal(scene_pending_bytes(), i == 1 ? SCENE_BLOCK : 0);
        if (i == 1)
            apply(scene.core, 0, SEGALLOC_RECORD_DONE, 0, 0);
    }
    scene.core->callbacks.aside = NULL;
}

/* The thread comes to its end while it is waited for. */
static bool await_begun(void)
{
    CUresult (*run)(void *user) = scene.aside;
    scene.aside = NULL;
    asides++;
    return run && run(scene.user) == CUDA_SUCCESS;
}

/* No wait begins while a capture is live. One that was begun before it is awaited, and tells of what was freed by then. */
static void captures_await_what_was_begun_before(void **state)
{
    (void)state;
    scene.current = scene_add_context(1, 0);
    scene.core->callbacks.await_begun = await_begun;
    asides = 0;
    scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
    scene.capturing = true;
    sg_device_drain(scene.device);
    assert_int_equal(asides, 1); /* nothing was begun */
    assert_int_equal(scene_pending_bytes(), SCENE_BLOCK);
    scene.capturing = false;
    ask(SG_ASK_FENCE);
    assert_non_null(scene.aside);
    scene.capturing = true;
    sg_device_drain(scene.device);
    assert_int_equal(scene_pending_bytes(), 0);
    scene.capturing = false;
}

#define TEST(name, start) cmocka_unit_test_setup_teardown(name, start, scene_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(epoch_covers_what_was_freed_before_its_events, scene_start),
        TEST(epoch_with_an_event_too_few_is_none, scene_start),
        TEST(epoch_that_never_begins_is_not_waited_for_long, scene_start),
        TEST(epoch_ends_with_the_last_context_that_it_waits_for, scene_start),
        TEST(nothing_pends_without_a_context_of_the_device, scene_start),
        TEST(nobody_who_frees_waits_on_an_older_driver, scene_start_on_older_driver),
        TEST(contexts_too_many_are_not_covered, scene_start),
        TEST(wait_aside_is_for_all_contexts_and_what_was_freed_before, scene_start_on_older_driver),
        TEST(contexts_too_many_are_not_waited_for_aside, scene_start_on_older_driver),
        TEST(nobody_waits_aside_without_need, scene_start),
        TEST(free_waits_where_nothing_tells, scene_start_on_older_driver),
        TEST(nobody_waits_aside_without_a_thread, scene_start_on_older_driver),
        TEST(trim_waits_where_no_event_tells, scene_start_on_older_driver),
        TEST(captures_await_what_was_begun_before, scene_start_on_older_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
