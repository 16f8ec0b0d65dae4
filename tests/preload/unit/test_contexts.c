/* Contexts are announced as they come and end, to each table, in the right order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "contexts_fakes.h"
#include "process/process.h"
#include "track/contexts.h"

static void all_hear_of_its_end(void **state)
{
    (void)state;
    make(MADE, 0);
    unsigned gate = atomic_load(&sg_fast_path_epoch);
    assert_int_equal(cuCtxDestroy_v2(MADE), CUDA_SUCCESS);
    assert_true(fake.during);
    assert_ptr_equal(POINTER(sg_core_context_ending, 1), MADE);
    assert_ptr_equal(POINTER(sg_streams_context_gone, 0), MADE);
    assert_ptr_equal(POINTER(sg_events_context_gone, 0), MADE);
    assert_ptr_equal(POINTER(sg_captures_context_gone, 0), MADE);
    assert_ptr_equal(POINTER(sg_graphs_context_gone, 0), MADE);
    assert_ptr_equal(POINTER(sg_core_context_gone, 2), MADE);
    assert_true(IS_BEFORE(sg_streams_context_gone, sg_core_context_gone));
    assert_int_not_equal(atomic_load(&sg_fast_path_epoch), gate);
}

static void lives_on_where_the_driver_refuses(void **state)
{
    (void)state;
    make(MADE, 0);
    fake.destroyed = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(cuCtxDestroy_v2(MADE), CUDA_ERROR_INVALID_VALUE);
    assert_true(fake.during);
    assert_int_equal(fake.ending_calls, 0);
    assert_int_equal(CALLS(sg_core_context_gone), 0);
    assert_null(POINTER(sg_streams_context_gone, 0));
}

/* At its last detach, by the driver's numbers and without them. */
static void detached_one_ends_with_its_last_user(void **state)
{
    (void)state;
    for (int ids = 0; ids < 2; ids++) {
        fake.ids = ids;
        fake.id = ids ? 7 : 0;
        fake.ending_calls = 0;
        FORGET(sg_core_context_gone);
        make(MADE, 0);
        fake.users = 2;
        assert_int_equal(cuCtxDetach(MADE), CUDA_SUCCESS);
        assert_true(fake.during);
        assert_int_equal(fake.ending_calls, 0);
        assert_int_equal(CALLS(sg_core_context_gone), 0);
        fake.destroyed = CUDA_ERROR_INVALID_CONTEXT;
        assert_int_equal(cuCtxDetach(MADE), CUDA_ERROR_INVALID_CONTEXT);
        assert_int_equal(CALLS(sg_core_context_gone), 0);
        fake.destroyed = CUDA_SUCCESS;
        assert_int_equal(cuCtxDetach(MADE), CUDA_SUCCESS);
        assert_int_equal(CALLS(sg_core_context_gone), 1);
        assert_ptr_equal(POINTER(sg_core_context_gone, 2), MADE);
    }
}

/* Idle pages go back while there still is a context; not at a release that is not the last. */
static void idle_pages_go_back_before_the_last_end(void **state)
{
    CUcontext context;
    (void)state;
    for (int i = 0; i < 2; i++) /* three times in all */
        assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_trim), 0);
    make(MADE, 0); /* another one of the device */
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(fake.trims_before, 0);
    assert_int_equal(cuCtxDestroy_v2(MADE), CUDA_SUCCESS);
    assert_int_equal(fake.trims_before, 0);
    fake.active = 0;
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(fake.trims_before, 1);
    assert_int_equal(CALLS(sg_core_trim), 2);
    make(FAR, 1);
    fake.users = 1;
    assert_int_equal(cuCtxDetach(FAR), CUDA_SUCCESS);
    assert_int_equal(fake.trims_before, 3);
    assert_int_equal(CALLS(sg_core_trim), 4);
}

static void primary_one_ends_with_its_last_release(void **state)
{
    (void)state;
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_true(fake.during);
    assert_int_equal(fake.ending_calls, 0);
    assert_int_equal(CALLS(sg_core_context_gone), 0);
    fake.active = 0;
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_context_gone), 1);
    assert_ptr_equal(POINTER(sg_core_context_gone, 2), PRIMARY);
}

static void primary_one_ends_with_a_reset(void **state)
{
    (void)state;
    assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_context_gone), 1);
}

static void primary_one_stands_for_all_where_it_is_the_only_one(void **state)
{
    CUcontext context;
    (void)state;
    assert_true(sg_contexts_stands_for_all(PRIMARY));
    assert_false(sg_contexts_devices());
    make(FAR, 1);
    assert_true(sg_contexts_stands_for_all(PRIMARY));
    assert_true(sg_contexts_devices());
    assert_false(sg_contexts_stands_for_all(FAR)); /* it is no primary one: others could come unseen */
    assert_int_equal(cuCtxFromGreenCtx(&context, GREEN), CUDA_SUCCESS);
    assert_true(sg_contexts_stands_for_all(PRIMARY));
    make(MADE, 0);
    assert_false(sg_contexts_stands_for_all(PRIMARY));
    assert_false(sg_contexts_stands_for_all(MADE));
}

/* The core knows the primary one alone; all others know the green one too. */
static void green_one_is_not_the_cores(void **state)
{
    CUcontext context;
    (void)state;
    assert_false(sg_contexts_green(OF_GREEN));
    assert_int_equal(cuCtxFromGreenCtx(&context, GREEN), CUDA_SUCCESS);
    assert_ptr_equal(POINTER(sg_core_context_seen, 2), PRIMARY);
    assert_true(sg_contexts_green(OF_GREEN));
    assert_int_equal(cuGreenCtxDestroy(GREEN), CUDA_SUCCESS);
    assert_ptr_equal(POINTER(sg_streams_context_gone, 0), OF_GREEN);
    assert_ptr_equal(POINTER(sg_events_context_gone, 0), OF_GREEN);
    assert_int_equal(CALLS(sg_core_context_gone), 0);
    assert_null(POINTER(sg_core_context_ending, 1));
    assert_false(sg_contexts_green(OF_GREEN));
}

/* A handle is used again; what a thread remembers of it ends with the context. */
static void handle_is_looked_at_anew_after_an_end(void **state)
{
    CUcontext context;
    int device;
    (void)state;
    make(FAR, 1);
    fake.current = FAR;
    assert_int_equal(sg_contexts_current(sg_process_core(), &context, &device), CUDA_SUCCESS);
    assert_int_equal(device, 1);
    assert_int_equal(cuCtxDestroy_v2(FAR), CUDA_SUCCESS);
    FORGET(sg_core_context_seen);
    assert_int_equal(sg_contexts_current(sg_process_core(), &context, &device), CUDA_SUCCESS);
    assert_ptr_equal(POINTER(sg_core_context_seen, 2), FAR);
}

/* Also one that is made later. */
static void core_hears_of_access_between_devices(void **state)
{
    (void)state;
    make(FAR, 1);
    fake.current = PRIMARY;
    assert_int_equal(cuCtxEnablePeerAccess(FAR, 0), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_peer_access), 1);
    assert_true(ARGUMENT(sg_core_peer_access, 3));
    sg_contexts_announce_all(sg_process_core());
    assert_int_equal(CALLS(sg_core_peer_access), 2);
    assert_int_equal(cuCtxDisablePeerAccess(FAR), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_peer_access), 3);
    assert_false(ARGUMENT(sg_core_peer_access, 3));
    sg_contexts_announce_all(sg_process_core());
    assert_int_equal(CALLS(sg_core_peer_access), 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_hear_of_its_end),
        TEST(lives_on_where_the_driver_refuses),
        TEST(detached_one_ends_with_its_last_user),
        TEST(idle_pages_go_back_before_the_last_end),
        TEST(primary_one_ends_with_its_last_release),
        TEST(primary_one_ends_with_a_reset),
        TEST(primary_one_stands_for_all_where_it_is_the_only_one),
        TEST(green_one_is_not_the_cores),
        TEST(handle_is_looked_at_anew_after_an_end),
        TEST(core_hears_of_access_between_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
