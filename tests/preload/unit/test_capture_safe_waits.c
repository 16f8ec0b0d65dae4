/* Waits beside captures are for an event, bounded and in slices. */
#include "capture_safe_fakes.h"

/* One could begin just before cuCtxSynchronize. */
static void programs_that_capture_are_waited_for_by_events(void **state)
{
    (void)state;
    CUcontext contexts[] = {(CUcontext)1, (CUcontext)2};
    cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuStreamEndCapture(captured, NULL);
    for (int i = 0; i < 3; i++) {
        CUcontext context = i ? contexts[i - 1] : fake.current;
        fake.calls = 0;
        fake.busy = 3;
        assert_int_equal(i ? gated.ctx_synchronize_of(context) : gated.ctx_synchronize(), CUDA_SUCCESS);
        assert_ptr_equal(fake.recorded_context, context);
        assert_ptr_equal(fake.current, (CUcontext)1);
        expect_calls(1 + 4);
    }
    assert_int_equal(fake.pushes, 0);
    assert_int_equal(fake.uses, 0);
    assert_false(fake.plain);
}

static void waits_for_events_are_bounded_and_in_slices(void **state)
{
    (void)state;
    fake.busy = 2;
    conf.wait_limit = 3600; /* however slow the machine is */
    assert_int_equal(gated.event_synchronize(event), CUDA_SUCCESS);
    expect_calls(3);
    fake.busy = 1 << 30;
    conf.wait_limit = 0.1;
    fake.rests = 0;
    assert_int_equal(gated.event_synchronize(event), CUDA_ERROR_NOT_READY);
    expect_calls(fake.calls);
    assert_in_range(fake.longest, 100000, 500000); /* ns: neither often nor late */
    assert_in_range(fake.rests, 200, 1000);
    fake.late = 200000000; /* this thread is seldom given the processor */
    fake.rests = 0;
    assert_int_equal(gated.event_synchronize(event), CUDA_ERROR_NOT_READY);
    assert_int_equal(fake.rests, 1);
}

/* An event over a context may fail at each step, and is undone. */
static void waits_that_cannot_be_had_leave_nothing(void **state)
{
    (void)state;
    begin_now();
    cuStreamEndCapture(captured, NULL);
    for (fake.accepted = 0; fake.accepted < 4; fake.accepted++) {
        int accepted = fake.accepted;
        fake.refused = CUDA_ERROR_OUT_OF_MEMORY;
        assert_int_equal(gated.ctx_synchronize_of((CUcontext)2), CUDA_ERROR_OUT_OF_MEMORY);
        fake.accepted = accepted;
        assert_ptr_equal(fake.current, (CUcontext)1);
        assert_int_equal(fake.pushes + fake.events + fake.uses, 0);
    }
}

/* Where an event over a context takes long each of the first times, a free does not pay for it. */
static void slow_events_are_not_waited_for_by(void **state)
{
    enum { TIMED = 8, SLOW = 201000, QUICK = 199000 };
    (void)state;
    begin_now();
    cuStreamEndCapture(captured, NULL);
    for (int quick = 0; quick < 2; quick++) {
        sg_captures_make_driver_safe(sg_process_driver(), &gated);
        for (int i = 0; i < TIMED; i++) {
            fake.plain = false;
            fake.takes = quick && i == 5 ? QUICK : SLOW + (uint64_t)i; /* once is enough */
            CUresult result = i % 2 ? gated.ctx_record_event(fake.current, event) : gated.ctx_synchronize();
            assert_int_equal(result, CUDA_SUCCESS);
            assert_false(fake.plain);
        }
        fake.takes = SLOW;
        assert_int_equal(gated.ctx_synchronize(), CUDA_SUCCESS);
        assert_int_equal(fake.plain, !quick);
        fake.plain = false;
        assert_int_equal(gated.ctx_record_event(fake.current, event), CUDA_SUCCESS); /* of which there are few */
    }
    sg_self.aside = true;
    assert_int_equal(gated.ctx_synchronize(), CUDA_SUCCESS);
    sg_self.aside = false;
    assert_false(fake.plain);
    assert_int_equal(fake.events, 0);
}

/* A thread of ours waits beside the program's by an event where captures may begin, and otherwise plainly. */
static void our_threads_wait_by_events_too(void **state)
{
    (void)state;
    sg_self.aside = true;
    assert_int_equal(gated.ctx_synchronize(), CUDA_SUCCESS);
    assert_int_equal(fake.plain, !sg_captures_any());
    begin_now();
    assert_int_equal(gated.ctx_synchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    cuStreamEndCapture(captured, NULL);
    fake.plain = false;
    assert_int_equal(gated.ctx_synchronize(), CUDA_SUCCESS);
    assert_false(fake.plain);
    struct sg_driver older = *sg_process_driver();
    older.ctx_record_event = NULL;
    sg_captures_make_driver_safe(&older, &gated);
    assert_int_equal(gated.ctx_synchronize(), CUDA_SUCCESS);
    assert_true(fake.plain);
    begin_now();
    assert_int_equal(gated.ctx_synchronize(), CUDA_ERROR_NOT_READY); /* nobody may wait for it */
    cuStreamEndCapture(captured, NULL);
    sg_self.aside = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(programs_that_capture_are_waited_for_by_events, start_afresh),
        cmocka_unit_test_setup(waits_for_events_are_bounded_and_in_slices, start_afresh),
        cmocka_unit_test_setup(waits_that_cannot_be_had_leave_nothing, start_afresh),
        cmocka_unit_test_setup(slow_events_are_not_waited_for_by, start_afresh),
        cmocka_unit_test_setup(our_threads_wait_by_events_too, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
