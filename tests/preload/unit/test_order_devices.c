/* Order among contexts and devices: each stream is the one that the driver says, and none is followed across devices. */
#include "order_steps.h"

static void orders_across_devices_are_not_followed(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(SECOND));
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), 0);
    assert_int_equal(ARGUMENT(sg_core_slot_untracked_order, 2), slot_of(2));
    cuEventSynchronize(event_of(1));
    assert_int_equal(CALLS(sg_core_completed), 1);
    assert_int_equal(latest_completed().slot, slot_of(SECOND));
}

static void what_completes_opaque_streams_tells_of_all(void **state)
{
    (void)state;
    cuStreamWaitValue32(stream_of(1), 0, 0, 0);
    cuEventRecord(event_of(1), stream_of(1));
    cuEventSynchronize(event_of(1));
    assert_int_equal(CALLS(sg_core_completed), 1);
    assert_true(fake.tolds > 0);
    fake.tolds = 0;
    cuStreamSynchronize(stream_of(1));
    assert_int_equal(CALLS(sg_core_completed), 2);
    assert_true(fake.tolds > 0);
    fake.tolds = 0;
    cuCtxSynchronize();
    assert_int_equal(CALLS(sg_core_completed), 3);
    assert_true(fake.tolds > 0);
    assert_int_equal(fake.told_devices, 3);
}

static void green_context_waits(void)
{
    int opaques = CALLS(sg_core_slot_untracked_order);
    cuEventRecord(event_of(2), stream_of(3));
    cuGreenCtxWaitEvent(NULL, event_of(2));
    expect(CALLS(sg_core_slot_untracked_order) >= opaques + 2);
    int completions = CALLS(sg_core_completed);
    cuStreamSynchronize(stream_of(3));
    expect(CALLS(sg_core_completed) == completions);
}

static void green_contexts_are_not_followed_either(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    cuGreenCtxRecordEvent(NULL, event_of(1));
    expect_doubt(1);
    apart(green_context_waits);
}

static void what_the_host_may_learn_is_the_streams_own(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    sg_streams_host_may_observe(stream_of(1), false);
    assert_int_equal(fake.told_some, 1);
    assert_int_equal(fake.tolds, 0);
    cuStreamWaitValue32(stream_of(1), 0, 0, 0);
    sg_streams_host_may_observe(stream_of(1), false);
    assert_true(fake.tolds > 0);
}

static void context_waits(void)
{
    cuCtxWaitEvent((CUcontext)1, event_of(1));
    expect(CALLS(sg_core_slot_untracked_order) == 1);
    expect(ARGUMENT(sg_core_slot_untracked_order, 2) == slot_of(THIRD));
}

static void a_context_that_waits_stands_for_its_device(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(THIRD));
    cuEventRecord(event_of(1), stream_of(SECOND));
    apart(context_waits);
}

static void waits_for_contexts_complete_what_they_stand_for(void **state)
{
    (void)state;
    cuCtxSynchronize_v2((CUcontext)1);
    assert_null(POINTER(sg_core_context_clock, 2)); /* the only one of its device */
    assert_true(latest_completed().all);
    cuCtxSynchronize_v2((CUcontext)3);
    assert_ptr_equal(POINTER(sg_core_context_clock, 2), (CUcontext)3);
    ANSWER(sg_contexts_devices, true);
    cuCtxSynchronize_v2((CUcontext)1);
    assert_false(latest_completed().all);
    cuCtxSynchronize_v2((CUcontext)3);
    assert_ptr_equal(POINTER(sg_core_context_clock, 2), (CUcontext)3);
}

static void default_streams_are_each_contexts_own(void **state)
{
    (void)state;
    sg_slot slot;
    for (uintptr_t round = 0; round < 6; round++) {
        fake.current = 1 + 2 * (round % 2);
        cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        assert_int_equal(ARGUMENT(sg_core_slot_submitted, 2), fake.slots[901 + 10 * (fake.current - 1)]);
        cuEventRecord(event_of(1), CU_STREAM_LEGACY);
        assert_true(round > 1 || fake.id.context == (CUcontext)fake.current);
        cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        assert_int_equal(ARGUMENT(sg_core_slot_submitted, 2), fake.slots[901 + 10 * (fake.current - 1)]);
    }
    fake.current = 1;
    cuEventRecord(event_of(1), CU_STREAM_LEGACY);
    assert_true(sg_streams_remembered(&sg_self, NULL, (CUcontext)1, 0, &slot));
    assert_false(sg_streams_remembered(&sg_self, NULL, (CUcontext)3, 0, &slot));
    assert_int_equal(slot, fake.slots[901]);
}

static void what_is_remembered_is_of_that_stream_and_device(void **state)
{
    (void)state;
    sg_slot slot;
    for (int i = 0; i < 3; i++)
        cuEventRecord(event_of(1), stream_of(1));
    assert_true(sg_streams_remembered(&sg_self, stream_of(1), (CUcontext)1, 0, &slot));
    assert_false(sg_streams_remembered(&sg_self, stream_of(1), (CUcontext)1, 1, &slot));
    assert_int_equal(slot, slot_of(1));
    cuStreamDestroy_v2(stream_of(1));
    assert_false(sg_streams_remembered(&sg_self, stream_of(1), (CUcontext)1, 0, &slot));
}

static void work_counts_where_its_stream_is_followed_elsewhere(void **state)
{
    (void)state;
    struct sg_tracked_stream place;
    assert_true(sg_streams_track_on(NULL, stream_of(SECOND), 0, &place));
    for (int i = 0; i < 3; i++) {
        FORGET(sg_core_slot_submitted);
        cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream_of(SECOND), NULL, NULL);
        assert_int_equal(CALLS(sg_core_slot_submitted), 2);
    }
}

static void meet_it_meanwhile(void)
{
    cuEventRecord(event_of(1), stream_of(1));
}

/* Two threads meet it at once. */
static void a_stream_is_followed_once(void **state)
{
    (void)state;
    fake.when_asked = meet_it_meanwhile;
    cuEventRecord(event_of(2), stream_of(1));
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    cuStreamWaitEvent(stream_of(2), event_of(2), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), 2);
    cuStreamDestroy_v2(stream_of(1));
    assert_int_equal(CALLS(sg_core_slot_gone), 1);
}

static CUresult record_with_flags(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, 0);
}

static CUresult record_with_flags_ptsz(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags_ptsz(event, stream, 0);
}

static void each_name_means_its_own_default_stream(void **state)
{
    (void)state;
    static CUresult (*const records[])(CUevent, CUstream) = {cuEventRecord, cuEventRecord_ptsz, record_with_flags,
        record_with_flags_ptsz};
    static CUresult (*const asks[])(
        CUstream) = {cuStreamQuery, cuStreamQuery_ptsz, cuStreamSynchronize, cuStreamSynchronize_ptsz};
    for (int i = 0; i < 4; i++) {
        cuEventRecord(event_of(1), CU_STREAM_LEGACY);
        cuEventRecord(event_of(2), CU_STREAM_PER_THREAD);
        sg_slot expected = fake.slots[i % 2 ? 902 : 901];
        records[i](event_of(3), NULL);
        cuEventSynchronize(event_of(3));
        assert_int_equal(latest_completed().slot, expected);
        FORGET(sg_core_completed);
        asks[i](NULL);
        assert_int_equal(latest_completed().slot, expected);
    }
}

static void streams_without_a_slot_are_not_believed(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(2));
    fake.no_slots = true;
    cuEventRecord(event_of(1), stream_of(1));
    int opaques = CALLS(sg_core_slot_untracked_order);
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), 0);
    assert_int_equal(CALLS(sg_core_slot_untracked_order), opaques + 1);
}

static void streams_are_what_the_driver_says(void **state)
{
    (void)state;
    struct sg_tracked_stream place;
    cuEventRecord(event_of(1), stream_of(1));
    assert_int_equal(fake.id.flags, 0);
    fake.flags = CU_STREAM_DEFAULT;
    cuEventRecord(event_of(1), stream_of(2));
    assert_int_equal(fake.id.flags, SG_STREAM_BLOCKING);
    fake.flags_answer = CUDA_ERROR_INVALID_HANDLE;
    cuEventRecord(event_of(1), stream_of(3));
    assert_int_equal(fake.id.flags, SG_STREAM_BLOCKING | SG_STREAM_UNTRACKED_ORDER);
    fake.flags_answer = CUDA_SUCCESS;
    assert_false(fake.id.per_thread);
    cuEventRecord(event_of(1), CU_STREAM_LEGACY);
    assert_int_equal(fake.id.flags, SG_STREAM_LEGACY);
    cuEventRecord(event_of(1), CU_STREAM_PER_THREAD);
    assert_int_equal(fake.id.flags, SG_STREAM_BLOCKING | SG_STREAM_UNTRACKED_ORDER);
    assert_true(fake.id.per_thread);
    fake.flags = CU_STREAM_NON_BLOCKING;
    ANSWER(sg_contexts_green, true);
    cuEventRecord(event_of(1), stream_of(THIRD));
    assert_int_equal(fake.id.flags, SG_STREAM_UNFENCEABLE);
    assert_ptr_equal(fake.id.context, (CUcontext)1);
    ANSWER(sg_contexts_green, false);
    assert_true(sg_streams_track_on(NULL, stream_of(SECOND), 0, &place)); /* elsewhere nothing is followed */
    assert_int_equal(fake.id.flags, SG_STREAM_UNTRACKED_ORDER | SG_STREAM_FOREIGN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(orders_across_devices_are_not_followed, start_afresh),
        cmocka_unit_test_setup(what_completes_opaque_streams_tells_of_all, start_afresh),
        cmocka_unit_test_setup(green_contexts_are_not_followed_either, start_afresh),
        cmocka_unit_test_setup(what_the_host_may_learn_is_the_streams_own, start_afresh),
        cmocka_unit_test_setup(a_context_that_waits_stands_for_its_device, start_afresh),
        cmocka_unit_test_setup(waits_for_contexts_complete_what_they_stand_for, start_afresh),
        cmocka_unit_test_setup(default_streams_are_each_contexts_own, start_afresh),
        cmocka_unit_test_setup(what_is_remembered_is_of_that_stream_and_device, start_afresh),
        cmocka_unit_test_setup(work_counts_where_its_stream_is_followed_elsewhere, start_afresh),
        cmocka_unit_test_setup(a_stream_is_followed_once, start_afresh),
        cmocka_unit_test_setup(each_name_means_its_own_default_stream, start_afresh),
        cmocka_unit_test_setup(streams_without_a_slot_are_not_believed, start_afresh),
        cmocka_unit_test_setup(streams_are_what_the_driver_says, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
