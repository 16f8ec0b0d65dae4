/* Contexts where a call fails, a handle comes again, or there are very many, against a driver and a core made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "contexts_fakes.h"
#include "track/context_pins.h"
#include "track/contexts.h"

/* Where the driver runs out of memory for a context, and something was idle, it is asked once more. */
static void what_is_idle_makes_room_for_a_context(void **state)
{
    (void)state;
    for (int call = 0; call < 4; call++) {
        for (int out = 0; out <= 2; out++) {
            for (int room = 0; room < 3; room++) {
                CUcontext context = NULL;
                fake.no_core = room == 2;
                fake.out = out;
                fake.room = room;
                fake.next = MADE;
                FORGET(sg_core_context_seen);
                CUresult result = call == 0 ? cuCtxCreate_v2(&context, 0, 0)
                    : call == 1 ? cuCtxCreate_v3(&context, NULL, 0, 0, 0)
                    : call == 2 ? cuCtxCreate_v4(&context, NULL, 0, 0)
                                : cuDevicePrimaryCtxRetain(&context, 0);
                bool good = out <= (room == 1);
                assert_int_equal(result, good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
                assert_ptr_equal(context, !good ? NULL : call == 3 ? PRIMARY : MADE);
                assert_int_equal(CALLS(sg_core_context_seen), good && room != 2);
                fake.no_core = false;
                fake.out = 0;
            }
        }
    }
}

/* What the program is not given is nobody's. */
static void nothing_is_noted_of_what_failed(void **state)
{
    CUcontext context = NULL;
    (void)state;
    FORGET(sg_core_context_seen);
    for (int i = 0; i < 2; i++) {
        CUcontext *ret = i ? &context : NULL;
        fake.created = fake.retained = fake.from_green = i ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        (void)cuCtxCreate_v2(ret, 0, 0);
        (void)cuCtxCreate_v3(ret, NULL, 0, 0, 0);
        (void)cuCtxCreate_v4(ret, NULL, 0, 0);
        (void)cuDevicePrimaryCtxRetain(ret, 0);
        (void)cuCtxFromGreenCtx(ret, GREEN);
    }
    assert_int_equal(CALLS(sg_core_context_seen), 0);
    fake.created = fake.retained = fake.from_green = CUDA_SUCCESS;
    assert_null(sg_contexts_of_green(GREEN));
    assert_null(sg_contexts_of_green(NULL));
}

/* The handle of a context whose end was not seen is that of another one: that is told first. */
static void handle_of_another_context_ends_the_first(void **state)
{
    (void)state;
    fake.ids = true;
    fake.id = 5;
    make(MADE, 0);
    make(MADE, 0); /* the same */
    assert_int_equal(CALLS(sg_core_context_gone), 0);
    fake.id = 6;
    make(MADE, 0);
    assert_int_equal(CALLS(sg_core_context_gone), 1);
    assert_ptr_equal(POINTER(sg_core_context_gone, 2), MADE);
    assert_true(sg_contexts_any(0) != NULL);
    fake.id = 0; /* the driver does not know it any more */
    assert_int_equal(cuCtxDestroy_v2(MADE), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_context_gone), 2);
    assert_int_equal(cuCtxDestroy_v2(MADE), CUDA_SUCCESS); /* nobody knows it */
    assert_int_equal(CALLS(sg_core_context_gone), 2);
}

/* Another thread's call is about to end a context. */
static void end_elsewhere(CUcontext context)
{
    sg_process_lock(SG_LOCK_CONTEXTS);
    sg_context_ending_locked(context, 1);
    sg_process_unlock(SG_LOCK_CONTEXTS);
    fake.ending_elsewhere = context;
}

/* One that nobody knew is no end of anything; one whose handle another thread's call is about to end comes after that. */
static void contexts_come_after_the_ends_of_their_handles(void **state)
{
    (void)state;
    fake.ids = true;
    fake.id = 5;
    make(MADE, 0);
    assert_null(POINTER(sg_streams_context_gone, 0));
    assert_int_equal(CALLS(sg_context_pins_rest), 0);
    fake.ids = false;
    make(FAR, 1);
    FORGET(sg_context_pins_rest);
    end_elsewhere(FAR);
    make(FAR, 1);
    assert_int_equal(CALLS(sg_context_pins_rest), 1);
    make(LAST, SG_DEVICES_MAX - 1);
    fake.ending_on = true; /* that may wait for this thread */
    end_elsewhere(LAST);
    make(LAST, SG_DEVICES_MAX - 1);
    assert_in_range(CALLS(sg_context_pins_rest), 100, 100000);
    fake.destroyed = CUDA_ERROR_INVALID_VALUE; /* an end that fails is none any more */
    assert_int_equal(cuCtxDestroy_v2(MADE), CUDA_ERROR_INVALID_VALUE);
    assert_false(sg_context_is_ending(MADE));
}

static void devices_are_found_by_any_of_their_contexts(void **state)
{
    (void)state;
    assert_ptr_equal(sg_contexts_any(0), PRIMARY);
    assert_null(sg_contexts_any(1));
    make(FAR, 1);
    assert_ptr_equal(sg_contexts_any(1), FAR);
    assert_true(sg_contexts_primary(PRIMARY));
    assert_false(sg_contexts_primary(FAR));
    assert_false(sg_contexts_primary(MADE));
    assert_false(sg_contexts_stands_for_all(MADE));
    make(MADE, 0);
    assert_int_equal(cuCtxDestroy_v2(MADE), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_trim), 0);
    assert_int_equal(cuCtxDestroy_v2(FAR), CUDA_SUCCESS); /* the last of its device: others may want its memory */
    assert_int_equal(CALLS(sg_core_trim), 2);             /* what was idle before, and what ended with it after */
    assert_int_equal(fake.trims_before, 1);
}

static void destroy_it_meanwhile(void)
{
    assert_int_equal(cuCtxDestroy(MADE), CUDA_SUCCESS);
}

/* One that another thread ends while the core is told of it would be waited for for good. */
static void core_forgets_a_context_that_ended_while_announced(void **state)
{
    (void)state;
    fake.next = MADE;
    fake.meanwhile = destroy_it_meanwhile;
    CUcontext context;
    assert_int_equal(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_context_forget), 1);
    assert_int_equal(CALLS(sg_core_context_gone), 1);
}

static void current_one_is_the_driver_s_to_name(void **state)
{
    CUcontext context;
    int device = 7;
    (void)state;
    /* there is none */
    assert_int_equal(sg_contexts_current(sg_process_core(), &context, &device), CUDA_ERROR_INVALID_CONTEXT);
    fake.current = MADE;
    fake.get_device = CUDA_ERROR_DEINITIALIZED;
    assert_int_equal(sg_contexts_current(sg_process_core(), &context, &device), CUDA_ERROR_DEINITIALIZED);
    assert_int_equal(device, 7);
}

/* A context that was not met is asked about; where that fails its device is not known. */
static void device_of_any_context_is_asked(void **state)
{
    int device = 7;
    (void)state;
    assert_true(sg_contexts_device(FAR, &device));
    assert_int_equal(device, 1);
    assert_null(fake.current);
    fake.push = CUDA_ERROR_INVALID_CONTEXT;
    assert_true(sg_contexts_device(PRIMARY, &device)); /* known */
    assert_int_equal(device, 0);
    assert_false(sg_contexts_device(FAR, &device));
    fake.push = CUDA_SUCCESS;
    fake.get_device = CUDA_ERROR_UNKNOWN;
    assert_false(sg_contexts_device(FAR, &device));
    assert_null(fake.current);
    assert_int_equal(device, 0);
}

/* A release that may have ended it, by all that is known, has where its state can't be asked for only if the number is
   another's. */
static void a_release_ends_what_has_another_number(void **state)
{
    (void)state;
    fake.state = CUDA_ERROR_UNKNOWN;
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_context_gone), 0);
    fake.state = CUDA_SUCCESS;
    assert_int_equal(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_context_gone), 1);
    CUcontext context;
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    fake.ids = true;
    fake.id = 8;
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS); /* which number it had nobody knows */
    fake.no_driver = true;
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    fake.no_driver = false;
    assert_int_equal(CALLS(sg_core_context_gone), 1);
    assert_int_equal(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    FORGET(sg_core_context_gone);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_context_gone), 0);
    fake.id = 9; /* another thread has taken up the next one */
    assert_int_equal(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_context_gone), 1);
    assert_int_equal(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS); /* of one that nobody met */
    assert_int_equal(CALLS(sg_core_context_gone), 1);
}

/* Without the primary context's help a green one is known for what it is, or not at all. */
static void green_ones_are_noted_where_the_driver_answers(void **state)
{
    CUcontext context;
    (void)state;
    fake.push = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(cuCtxFromGreenCtx(&context, GREEN), CUDA_SUCCESS);
    assert_false(sg_contexts_green(OF_GREEN));
    fake.push = CUDA_SUCCESS;
    ANSWER(sg_thread_inside, true); /* ours */
    assert_int_equal(cuCtxFromGreenCtx(&context, GREEN), CUDA_SUCCESS);
    assert_false(sg_contexts_green(OF_GREEN));
    ANSWER(sg_thread_inside, false);
    fake.retained = CUDA_ERROR_INVALID_DEVICE;
    FORGET(sg_core_context_seen);
    assert_int_equal(cuCtxFromGreenCtx(&context, GREEN), CUDA_SUCCESS);
    assert_true(sg_contexts_green(OF_GREEN));
    assert_null(POINTER(sg_core_context_seen, 2));
    fake.destroyed = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(cuGreenCtxDestroy(GREEN), CUDA_ERROR_INVALID_VALUE);
    assert_true(sg_contexts_green(OF_GREEN));
    fake.destroyed = CUDA_SUCCESS;
    assert_int_equal(cuGreenCtxDestroy(NULL), CUDA_SUCCESS);
    assert_true(sg_contexts_green(OF_GREEN));
}

/* What the core can't do the program is told, and the driver's access is taken back. */
static void access_that_is_not_had_is_no_access(void **state)
{
    (void)state;
    make(FAR, 1);
    fake.current = PRIMARY;
    ANSWER(fake_real.cuCtxEnablePeerAccess, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ANSWER(fake_real.cuCtxDisablePeerAccess, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    assert_int_equal(cuCtxEnablePeerAccess(FAR, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    assert_int_equal(cuCtxDisablePeerAccess(FAR), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ANSWER(fake_real.cuCtxEnablePeerAccess, CUDA_SUCCESS);
    ANSWER(fake_real.cuCtxDisablePeerAccess, CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_peer_access), 0);
    assert_int_equal(cuCtxEnablePeerAccess(MADE, 0), CUDA_SUCCESS); /* of the same device: nothing to tell */
    assert_int_equal(CALLS(sg_core_peer_access), 0);
    FORGET(fake_real.cuCtxDisablePeerAccess);
    fake.get_device = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(cuCtxEnablePeerAccess(FAR, 0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(CALLS(fake_real.cuCtxDisablePeerAccess), 1);
    fake.get_device = CUDA_SUCCESS;
    fake.push = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(cuCtxEnablePeerAccess(FAR, 0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(CALLS(fake_real.cuCtxDisablePeerAccess), 2);
    fake.push = CUDA_SUCCESS;
    ANSWER(sg_core_peer_access, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuCtxEnablePeerAccess(FAR, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(CALLS(fake_real.cuCtxDisablePeerAccess), 3);
    ANSWER(sg_core_peer_access, CUDA_SUCCESS);
    FORGET(sg_core_peer_access);
    fake.no_core = true; /* it is told when it is made */
    assert_int_equal(cuCtxEnablePeerAccess(FAR, 0), CUDA_SUCCESS);
    fake.no_core = false;
    assert_int_equal(CALLS(sg_core_peer_access), 0);
    sg_contexts_announce_all(sg_process_core());
    assert_int_equal(CALLS(sg_core_peer_access), 1);
    ANSWER(sg_thread_inside, true);
    assert_int_equal(cuCtxDisablePeerAccess(FAR), CUDA_SUCCESS);
    ANSWER(sg_thread_inside, false);
    assert_int_equal(CALLS(sg_core_peer_access), 1);
    fake.no_driver = true;
    assert_int_equal(cuCtxDisablePeerAccess(FAR), CUDA_SUCCESS);
    fake.no_driver = false;
    assert_int_equal(cuCtxDisablePeerAccess(FAR), CUDA_SUCCESS);
}

/* Each device's memory by each of the others, to the last one. */
static void every_device_notes_peer_access(void **state)
{
    (void)state;
    make(LAST, SG_DEVICES_MAX - 1);
    fake.current = LAST;
    fake.no_core = true;
    assert_int_equal(cuCtxEnablePeerAccess(PRIMARY, 0), CUDA_SUCCESS);
    fake.no_core = false;
    sg_contexts_announce_all(sg_process_core());
    assert_int_equal(CALLS(sg_core_peer_access), 1);
    assert_int_equal(cuCtxDisablePeerAccess(PRIMARY), CUDA_SUCCESS);
    assert_false(ARGUMENT(sg_core_peer_access, 3));
}

/* More than the list holds: the core hears of each that allocates, and nobody takes the primary one for all. */
static void contexts_beyond_the_list_are_served(void **state)
{
    enum { FIRST = 4096 };
    (void)state;
    for (uintptr_t i = 0; i < SG_CONTEXTS_KNOWN; i++)
        make((CUcontext)(FIRST + 64 * i), 0);
    assert_int_equal(CALLS(sg_core_context_seen), SG_CONTEXTS_KNOWN + 1);
    assert_int_equal(CALLS(sg_core_context_forget), 0); /* also the one that found no place */
    assert_false(sg_contexts_stands_for_all(PRIMARY));
    for (uintptr_t i = 0; i < SG_CONTEXTS_KNOWN; i++)
        assert_int_equal(cuCtxDestroy_v2((CUcontext)(FIRST + 64 * i)), CUDA_SUCCESS);
    assert_true(sg_contexts_stands_for_all(PRIMARY));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_idle_makes_room_for_a_context),
        TEST(nothing_is_noted_of_what_failed),
        TEST(handle_of_another_context_ends_the_first),
        TEST(contexts_come_after_the_ends_of_their_handles),
        TEST(devices_are_found_by_any_of_their_contexts),
        TEST(core_forgets_a_context_that_ended_while_announced),
        TEST(current_one_is_the_driver_s_to_name),
        TEST(device_of_any_context_is_asked),
        TEST(a_release_ends_what_has_another_number),
        TEST(green_ones_are_noted_where_the_driver_answers),
        TEST(access_that_is_not_had_is_no_access),
        TEST(every_device_notes_peer_access),
        TEST(contexts_beyond_the_list_are_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
