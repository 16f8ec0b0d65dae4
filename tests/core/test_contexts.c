/* Contexts as they come, end and are gone, more of them than are followed; and access for other devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scene.h"
#include "strict_driver.h"
#include "locked.h"

static void context_is_seen_once(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        (void)scene_add_context(1, 0);
    assert_int_equal(sg_context_list_of(&scene.core->contexts, scene.device->ordinal), 1);
    (void)scene_add_context(2, 0);
    sg_core_context_forget(scene.core, scene_context(1));
    sg_core_context_forget(scene.core, scene_context(1));
    assert_true(sg_context_list_is_only(&scene.core->contexts, scene_context(2)));
    (void)scene_add_context(3, 0); /* where the first was */
    assert_int_equal(scene.core->contexts.count, 2);
}

static void contexts_beyond_what_is_followed(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= SG_CONTEXTS_MAX; i++)
        (void)scene_add_context(i, 0);
    assert_false(scene.core->contexts.missed);
    (void)scene_add_context(SG_CONTEXTS_MAX, 0); /* known already */
    assert_false(scene.core->contexts.missed);
    (void)scene_add_context(SG_CONTEXTS_MAX + 1, 0);
    assert_true(scene.core->contexts.missed);
    assert_int_equal(scene.core->contexts.count, SG_CONTEXTS_MAX);
    assert_false(LOCKED(scene.device, sg_fences_can_cover_locked(scene.device)));
    /* one that was missed ends like any other */
    sg_core_context_gone(scene.core, 0, scene_context(SG_CONTEXTS_MAX + 1));
    assert_int_equal(sg_context_list_of(&scene.core->contexts, scene.device->ordinal), SG_CONTEXTS_MAX);
}

static void call_that_may_end_a_context(void **state)
{
    (void)state;
    CUcontext known = scene_add_context(1, 0), unknown = scene_context(9);
    sg_core_context_ending(scene.core, unknown, true);
    sg_core_context_ending(scene.core, unknown, false);
    assert_false(sg_context_list_is_ending(&scene.core->contexts, unknown));
    sg_core_context_ending(scene.core, known, true);
    sg_core_context_ending(scene.core, known, true);
    sg_core_context_ending(scene.core, known, false);
    assert_true(sg_context_list_is_ending(&scene.core->contexts, known)); /* another is still at it */
    assert_false(sg_context_list_is_ending(&scene.core->contexts, unknown));
    sg_core_context_gone(scene.core, 0, known);
    sg_core_context_ending(scene.core, known, false); /* it has ended, and come back */
    (void)scene_add_context(1, 0);
    sg_core_context_ending(scene.core, known, false);
    assert_false(sg_context_list_is_ending(&scene.core->contexts, known));
    assert_int_equal(scene.core->contexts.all_ending, 0);
}

/* What is there gets access, in as many calls as there are stretches; the first failure is said. */
static void access_for_peers(void **state)
{
    (void)state;
    CUdeviceptr block[3];
    uint64_t backing;
    scene.current = scene_add_context(1, 0);
    for (int i = 0; i < 3; i++)
        block[i] = scene_allocate(0);
    scene_free(block[1], SG_FREE_SYNC_COMPLETE);
    (void)sg_core_trim(scene.core, 0, 0); /* a gap */
    strict_fail_at(1, false, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(sg_core_peer_access(scene.core, 0, 1, true), CUDA_ERROR_ILLEGAL_ADDRESS);
    strict_fail_at(0, false, CUDA_SUCCESS);
    assert_false(strict_backing(block[0], SCENE_BLOCK, 1, &backing));
    assert_false(strict_backing(block[2], SCENE_BLOCK, 1, &backing));
    assert_int_equal(sg_core_peer_access(scene.core, 0, 1, true), CUDA_SUCCESS);
    assert_true(strict_backing(block[0], SCENE_BLOCK, 1, &backing));
    assert_true(strict_backing(block[2], SCENE_BLOCK, 1, &backing));
    assert_int_equal(sg_core_peer_access(scene.core, 0, 1, false), CUDA_SUCCESS);
    scene_free(block[0], SG_FREE_SYNC_COMPLETE);
    scene_free(block[2], SG_FREE_SYNC_COMPLETE);
}

static void wait_for_all_stops_at_the_first_error(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= 3; i++)
        (void)scene_add_context(i, 0);
    sg_core_context_forget(scene.core, scene_context(2));
    assert_int_equal(sg_core_wait_for_all(scene.core), CUDA_SUCCESS);
    assert_int_equal(scene.waited, 1 << 1 | 1 << 3);
    scene.waited = 0;
    strict_fail_at(1, false, CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(sg_core_wait_for_all(scene.core), CUDA_ERROR_LAUNCH_FAILED);
    strict_fail_at(0, false, CUDA_SUCCESS);
    assert_int_equal(scene.waited, 1 << 1);
}

/* Of frees that wait for every context the clock of one tells nothing. */
static void clock_of_one_context_of_two(void **state)
{
    struct sg_vector_clock clock;
    (void)state;
    scene.current = scene_add_context(1, 0);
    scene_free(scene_allocate(0), SG_FREE_SYNC_EVENT);
    sg_core_context_clock(scene.core, 0, scene_context(1), &clock);
    assert_true(clock.at[0] > 0);
    (void)scene_add_context(2, 0);
    sg_core_context_clock(scene.core, 0, scene_context(1), &clock);
    assert_int_equal(clock.at[0], 0);
    sg_core_context_clock(scene.core, 0, NULL, &clock);
    assert_true(clock.at[0] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(context_is_seen_once, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(contexts_beyond_what_is_followed, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(call_that_may_end_a_context, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(access_for_peers, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(clock_of_one_context_of_two, scene_start, scene_stop),
        cmocka_unit_test_setup_teardown(wait_for_all_stops_at_the_first_error, scene_start, scene_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
