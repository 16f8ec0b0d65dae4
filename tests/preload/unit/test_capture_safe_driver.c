/* No question is put to the driver that would ruin a live capture, and none begins meanwhile. */
#include "capture_safe_fakes.h"

static begin_fn *way; /* to begin a capture */

static void without_captures_all_is_asked(void **state)
{
    (void)state;
    assert_int_equal(gated.ctx_synchronize(), CUDA_SUCCESS);
    assert_true(fake.plain);
    assert_int_equal(gated.event_query(event), CUDA_SUCCESS);
    assert_int_equal(gated.event_record(event, NULL), CUDA_SUCCESS);
    assert_int_equal(gated.ctx_record_event(fake.current, event), CUDA_SUCCESS);
    expect_calls(3);
}

static void captures_are_left_alone(void **state)
{
    (void)state;
    static CUstream const closed[] = {(CUstream)64, NULL, CU_STREAM_LEGACY};
    CUcontext context = fake.current;
    cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gated.event_record(event, closed[i]), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    assert_int_equal(gated.ctx_record_event(context, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(gated.ctx_synchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(gated.ctx_synchronize_of(context), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_calls(0);
    assert_int_equal(gated.event_record(event, other), CUDA_SUCCESS);
    fake.strict = 0; /* that is free to any mode */
    assert_int_equal(gated.event_query(event), CUDA_SUCCESS);
    expect_calls(2);
    assert_int_equal(fake.strict, 0);
    assert_int_equal(thread_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuStreamEndCapture(captured, NULL);
    assert_int_equal(fake.uses, 0);
    assert_false(fake.plain);
}

static void captures_that_begin_at_the_last_moment_are_left_alone(void **state)
{
    (void)state;
    struct sg_driver older = *sg_process_driver();
    begin_now();
    cuStreamEndCapture(captured, NULL);
    fake.in_look = begin_now;
    assert_int_equal(gated.ctx_synchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_true(sg_captures_active());
    older.ctx_record_event = NULL;
    sg_captures_make_driver_safe(&older, &gated);
    assert_int_equal(gated.ctx_synchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    cuStreamEndCapture(captured, NULL);
    expect_calls(0);
    assert_false(fake.plain);
    assert_int_equal(gated.ctx_synchronize(), CUDA_SUCCESS);
    assert_true(fake.plain);
}

static void captures_end_with_their_context(void **state)
{
    (void)state;
    begin_now();
    sg_captures_context_gone((CUcontext)2);
    assert_true(sg_captures_active());
    sg_captures_context_gone(fake.current);
    assert_false(sg_captures_active());
}

static void *expect_no_own(void *unused)
{
    CUstream stream;
    (void)unused;
    assert_false(sg_captures_own(&stream));
    return NULL;
}

static pthread_t thread;

static void a_capture_is_its_threads(void **state)
{
    (void)state;
    CUstream stream = NULL;
    unsigned gate = sg_fast_path_epoch;
    cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_not_equal(sg_fast_path_epoch, gate); /* what was learnt without captures holds no more */
    assert_true(sg_captures_own(&stream));
    assert_ptr_equal(stream, captured);
    pthread_create(&thread, NULL, expect_no_own, NULL);
    pthread_join(thread, NULL);
    assert_false(sg_captures_forked(captured));
    assert_true(sg_captures_forked(other));
    sg_captures_joining();
    sg_captures_joined();
    assert_true(sg_captures_forked(captured));
    cuStreamEndCapture(captured, NULL);
    assert_false(sg_captures_own(&stream));
}

static void default_streams_are_captured_each_for_itself(void **state)
{
    (void)state;
    cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED);
    fake.capturing = CU_STREAM_PER_THREAD;
    assert_true(sg_captures_capturing(NULL, true));
    assert_false(sg_captures_capturing(NULL, false));
    cuStreamEndCapture_ptsz(NULL, NULL);
    assert_false(sg_captures_active());
}

static void let_others_run(void)
{
    for (int i = 0; i < 5; i++)
        usleep(1000);
}

static void *begin_capture(void *unused)
{
    (void)unused;
    way();
    return NULL;
}

static void begin_meanwhile(void)
{
    pthread_create(&thread, NULL, begin_capture, NULL);
    for (int i = 0; i < 1000000 && !sg_captures_active(); i++)
        usleep(100);
    assert_true(sg_captures_active());
    let_others_run();
    assert_int_equal(fake.begun, 0);
}

static void no_capture_begins_while_something_is_asked(void **state)
{
    for (int i = 0; i < WAYS; i++) {
        start_afresh(state);
        way = ways[i];
        fake.in_record = begin_meanwhile;
        gated.event_record(event, other);
        pthread_join(thread, NULL);
        assert_int_equal(fake.begun, 1);
        assert_true(sg_captures_active());
        cuStreamEndCapture(captured, NULL);
        assert_false(sg_captures_active());
    }
}

static void *record(void *unused)
{
    (void)unused;
    gated.event_record(event, other);
    return NULL;
}

static void record_meanwhile(void)
{
    assert_true(sg_captures_active());
    pthread_create(&thread, NULL, record, NULL);
    let_others_run();
    assert_int_equal(fake.recorded, 0);
}

static void nothing_is_asked_while_a_capture_begins(void **state)
{
    for (int i = 0; i < WAYS; i++) {
        start_afresh(state);
        fake.in_begin = record_meanwhile;
        ways[i]();
        pthread_join(thread, NULL);
        assert_int_equal(fake.recorded, 1);
        cuStreamEndCapture(captured, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_captures_all_is_asked, start_afresh),
        cmocka_unit_test_setup(captures_are_left_alone, start_afresh),
        cmocka_unit_test_setup(captures_that_begin_at_the_last_moment_are_left_alone, start_afresh),
        cmocka_unit_test_setup(captures_end_with_their_context, start_afresh),
        cmocka_unit_test_setup(a_capture_is_its_threads, start_afresh),
        cmocka_unit_test_setup(default_streams_are_captured_each_for_itself, start_afresh),
        cmocka_unit_test_setup(no_capture_begins_while_something_is_asked, start_afresh),
        cmocka_unit_test_setup(nothing_is_asked_while_a_capture_begins, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
