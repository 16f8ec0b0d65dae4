/* No order follows from an event that is not known, or that happened out of sight. */
#include "order_steps.h"

static void expect_nothing_learnt(uintptr_t event)
{
    cuStreamWaitEvent(stream_of(2), event_of(event), 0);
    cuEventSynchronize(event_of(event));
    expect(CALLS(sg_core_ordered_after) == 0 && CALLS(sg_core_completed) == 0 && fake.tolds > 0);
    expect(CALLS(sg_core_slot_untracked_order) == 1 && ARGUMENT(sg_core_slot_untracked_order, 2) == slot_of(2));
}

static void newer_driver(void)
{
    cuEventRecord(event_of(1), stream_of(1));
    sg_streams_untrack("cuSomethingNew");
    expect_nothing_learnt(1);
    cuStreamSynchronize(stream_of(1));
    cuCtxSynchronize();
    cuCtxSynchronize_v2((CUcontext)1);
    expect(CALLS(sg_core_completed) == 0);
}

static void calls_of_a_newer_driver_may_be_missed(void **state)
{
    (void)state;
    apart(newer_driver);
}

static void use_legacy_stream(void)
{
    cuEventRecord(event_of(1), CU_STREAM_LEGACY);
    expect(fake.id.flags == (SG_STREAM_LEGACY | SG_STREAM_UNUSED));
}

static void use_legacy_stream_of_a_newer_driver(void)
{
    sg_streams_untrack("cuSomethingNew");
    cuEventRecord(event_of(1), CU_STREAM_LEGACY);
    expect(fake.id.flags == SG_STREAM_LEGACY);
}

static void use_legacy_stream_beside_one_without_a_slot(void)
{
    fake.no_slots = true;
    cuEventRecord(event_of(1), stream_of(1));
    cuEventRecord(event_of(1), CU_STREAM_LEGACY);
    expect(fake.id.flags == SG_STREAM_LEGACY);
}

/* Its first work is what it gets a slot for, if all calls are seen. */
static void the_legacy_stream_has_done_nothing_before(void **state)
{
    (void)state;
    apart(use_legacy_stream);
    apart(use_legacy_stream_of_a_newer_driver);
    apart(use_legacy_stream_beside_one_without_a_slot);
}

static void the_legacy_stream_may_have_done_anything_before(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), CU_STREAM_LEGACY);
    assert_int_equal(fake.id.flags, SG_STREAM_LEGACY);
}

static void full_table(void)
{
    for (uintptr_t i = 64; i < 6000; i++) {
        CUevent event = event_of(i);
        cuEventCreate(&event, 0);
        cuEventRecord(event, stream_of(1));
    }
    expect_nothing_learnt(5999);
}

static void events_that_could_not_be_kept_are_unknown(void **state)
{
    (void)state;
    apart(full_table);
}

/* One that was created since then is none of those. */
static void taint_of_a_full_table(void)
{
    CUevent later = event_of(6001);
    for (uintptr_t i = 64; i < 6000; i++)
        cuEventRecord(event_of(i), stream_of(1));
    cuIpcGetEventHandle(NULL, event_of(6000));
    for (uintptr_t i = 64; i < 6000; i++)
        cuEventDestroy(event_of(i));
    cuEventRecord(event_of(6000), stream_of(1));
    expect_nothing_learnt(6000);
    cuEventCreate(&later, 0);
    cuEventRecord(later, stream_of(1));
    cuStreamWaitEvent(stream_of(3), later, 0);
    expect(CALLS(sg_core_ordered_after) == 1 && CALLS(sg_core_slot_untracked_order) == 1);
}

static void what_a_full_table_could_not_say_is_not_believed_later(void **state)
{
    (void)state;
    apart(taint_of_a_full_table);
}

static void taint_lasts_until_the_end(void **state)
{
    (void)state;
    cuIpcGetEventHandle(NULL, event_of(1));
    cuCtxRecordEvent((CUcontext)1, event_of(1));
    cuEventRecord(event_of(1), stream_of(1));
    expect_doubt(1);
    cuEventDestroy(event_of(1));
    int opaques = CALLS(sg_core_slot_untracked_order);
    cuStreamWaitEvent(stream_of(2), event_of(1), 0); /* of an event whose beginning was not seen */
    assert_int_equal(CALLS(sg_core_ordered_after) + CALLS(sg_core_slot_untracked_order), opaques);
    CUevent event = event_of(1);
    cuEventCreate(&event, 0);
    cuEventRecord(event_of(1), stream_of(1));
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), 1);
}

static void taint_meanwhile(void)
{
    cuIpcGetEventHandle(NULL, event_of(1));
}

static void record_context_meanwhile(void)
{
    cuCtxRecordEvent((CUcontext)1, event_of(1));
}

static void knowledge_read_before_is_void(void **state)
{
    static void (*const changes[])(void) = {taint_meanwhile, record_context_meanwhile};
    (void)state;
    for (int i = 1; i >= 0; i--) {
        int opaques = CALLS(sg_core_slot_untracked_order);
        cuEventRecord(event_of(1), stream_of(1));
        fake.meanwhile = changes[i];
        cuStreamWaitEvent(stream_of(2 + (uintptr_t)i), event_of(1), 0);
        assert_int_equal(CALLS(sg_core_ordered_after), 0);
        assert_int_equal(CALLS(sg_core_slot_untracked_order), opaques + 1);
        cuEventRecord(event_of(1), stream_of(1));
        fake.meanwhile = changes[i];
        cuEventQuery(event_of(1));
        assert_int_equal(CALLS(sg_core_completed), 0);
    }
}

static void destroy_and_create_meanwhile(void)
{
    CUevent event = event_of(1);
    cuEventDestroy(event);
    cuEventCreate(&event, 0);
}

/* The next event of its handle is another one. */
static void knowledge_is_of_the_event_and_not_of_its_handle(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    fake.meanwhile = destroy_and_create_meanwhile;
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), 0);
    assert_int_equal(CALLS(sg_core_slot_untracked_order), 1);
}

/* Others may wait for it whom nobody hears: what comes before the record is told of, and what the driver has put
   before it meanwhile. */
static void records_that_others_wait_for_are_told_of_twice(void **state)
{
    (void)state;
    cuIpcGetEventHandle(NULL, event_of(1));
    cuEventRecord(event_of(1), stream_of(1));
    assert_int_equal(fake.told_some, 2);
    cuEventRecord(event_of(2), stream_of(1));
    assert_int_equal(fake.told_some, 2);
}

static void wait_meanwhile(void)
{
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    cuEventSynchronize(event_of(1));
}

static void nothing_is_known_while_it_is_recorded(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    fake.meanwhile = wait_meanwhile;
    cuEventRecord(event_of(1), stream_of(3));
    assert_int_equal(CALLS(sg_core_ordered_after) + CALLS(sg_core_completed), 0);
    assert_int_equal(CALLS(sg_core_slot_untracked_order), 1);
}

static void events_of_other_processes_are_tainted(void **state)
{
    (void)state;
    CUevent opened = event_of(1), made = event_of(2);
    CUipcEventHandle handle;
    memset(&handle, 0, sizeof handle);
    cuIpcOpenEventHandle(&opened, handle);
    cuEventCreateFromEGLSync(&made, NULL, 0);
    for (uintptr_t i = 1; i <= 2; i++) {
        cuEventRecord(event_of(i), stream_of(1));
        expect_doubt(i);
    }
}

static void an_end_that_was_not_seen_shows_in_the_next_beginning(void **state)
{
    (void)state;
    CUevent event = event_of(1);
    cuEventRecord(event_of(1), stream_of(1));
    cuEventCreate(&event, 0);
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    cuEventRecord(event_of(2), stream_of(1));
    sg_events_context_gone((CUcontext)1);
    cuStreamWaitEvent(stream_of(2), event_of(2), 0);
    assert_int_equal(CALLS(sg_core_ordered_after) + CALLS(sg_core_slot_untracked_order), 0);
    CUstream stream = stream_of(3);
    for (int i = 0; i < 3; i++) /* what its handle means is remembered by now */
        cuEventRecord(event_of(3), stream_of(3));
    fake.ids[3] = 802;
    fake.slots[802] = 0;
    cuStreamCreate(&stream, 0);
    cuStreamWaitEvent(stream_of(3), event_of(3), 0);
    assert_int_equal(ARGUMENT(sg_core_ordered_after, 2), fake.slots[802]);
    sg_slot before = slot_of(4);
    cuStreamWaitEvent(stream_of(4), event_of(3), 0);
    before = slot_of(4);
    sg_streams_context_gone((CUcontext)1);
    fake.slots[fake.ids[4]] = 0;
    cuStreamWaitEvent(stream_of(4), event_of(3), 0);
    assert_int_not_equal(ARGUMENT(sg_core_ordered_after, 2), before);
}

static void streams_go_before_the_driver_destroys_them(void **state)
{
    (void)state;
    static CUresult (*const destroys[])(CUstream) = {cuStreamDestroy, cuStreamDestroy_v2};
    for (uintptr_t i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++)
            cuEventRecord(event_of(1), stream_of(1 + i));
        FORGET(sg_core_slot_gone);
        destroys[i](stream_of(1 + i));
        assert_int_equal(ARGUMENT(sg_core_slot_gone, 2), slot_of(1 + i));
        assert_false(IS_BEFORE(fake_real.cuStreamDestroy_v2, sg_core_slot_gone));
        fake.ids[1 + i] = 810 + i; /* the next one of that handle */
        fake.slots[810 + i] = 0;
        cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream_of(1 + i), NULL, NULL);
        assert_int_not_equal(fake.slots[810 + i], 0);
        assert_int_equal(ARGUMENT(sg_core_slot_submitted, 2), fake.slots[810 + i]);
    }
}

static void context_waits_unfollowed(void)
{
    atomic_store(&sg_following_order, false);
    cuEventRecord(event_of(1), stream_of(1)); /* nobody hears of it */
    for (int green = 0; green < 2; green++) {
        atomic_store(&sg_following_order, false);
        fake.live = false;
        fake.tolds = 0;
        fake.meanwhile = sg_follow;
        if (green)
            cuGreenCtxWaitEvent((CUgreenCtx)16, event_of(1));
        else
            cuCtxWaitEvent((CUcontext)1, event_of(1));
        expect(fake.tolds > 0);
    }
}

/* Also where another thread begins to follow meanwhile: nothing is known of records before that. */
static void contexts_may_wait_for_unknown_events(void **state)
{
    (void)state;
    apart(context_waits_unfollowed);
}

static void ask_unfollowed(void)
{
    cuIpcGetEventHandle(NULL, event_of(1));
    atomic_store(&sg_following_order, false);
    cuEventQuery(event_of(1));
    cuEventSynchronize(event_of(1));
    cuEventElapsedTime(NULL, event_of(1), event_of(2));
    sg_streams_host_may_observe_all();
    sg_streams_host_may_observe(stream_of(1), false);
    expect(fake.tolds + fake.told_some + CALLS(sg_core_completed) == 0);
}

/* Nor where nobody depends on it. */
static void nothing_is_told_where_all_is_recorded(void **state)
{
    (void)state;
    ANSWER(sg_memory_guesses, false);
    cuEventRecord(event_of(1), stream_of(1));
    sg_streams_host_may_observe_all();
    sg_streams_host_may_observe(stream_of(1), false);
    assert_int_equal(fake.tolds + fake.told_some, 0);
    ANSWER(sg_memory_guesses, true);
    sg_streams_host_may_observe_all();
    assert_int_equal(fake.told_devices, 3);
}

/* There is no time between two events before both are complete. */
static void measuring_completes_both_events(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        cuEventRecord(event_of(1), stream_of(1));
        cuEventRecord(event_of(2), stream_of(2));
        FORGET(sg_core_completed);
        fake.answer = CUDA_ERROR_NOT_READY;
        (i ? cuEventElapsedTime_v2 : cuEventElapsedTime)(NULL, event_of(1), event_of(2));
        assert_int_equal(CALLS(sg_core_completed), 0);
        fake.answer = CUDA_SUCCESS;
        (i ? cuEventElapsedTime_v2 : cuEventElapsedTime)(NULL, event_of(1), event_of(2));
        assert_int_equal(CALLS(sg_core_completed), 2);
        sg_self.inside = true;
        (i ? cuEventElapsedTime_v2 : cuEventElapsedTime)(NULL, event_of(1), event_of(2));
        sg_self.inside = false;
        assert_int_equal(CALLS(sg_core_completed), 2);
    }
}

/* In a process of its own: order is followed for good. */
static void follow_as_configured(void)
{
    static const struct {
        enum sg_free_sync wanted;
        bool follows;
    } list[] = {{SG_FREE_SYNC_AUTO, true}, {SG_FREE_SYNC_STREAM, true}, {SG_FREE_SYNC_EVENT, false},
        {SG_FREE_SYNC_STRICT, false}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        atomic_store(&sg_following_order, false);
        fake.free_sync = list[i].wanted;
        sg_follow_as_configured();
        expect(sg_following() == list[i].follows);
    }
}

static void order_is_followed_as_configured(void **state)
{
    (void)state;
    apart(follow_as_configured);
}

static void nothing_is_told_where_nobody_follows(void **state)
{
    (void)state;
    apart(ask_unfollowed);
}

static void work_meanwhile(void)
{
    struct sg_vector_clock clock;
    sg_core_clock(NULL, 0, slot_of(1), &clock);
}

static void what_is_complete_was_given_before_the_question(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    fake.meanwhile = work_meanwhile;
    cuStreamSynchronize(stream_of(1));
    assert_true(latest_completed().time < fake.time);
}

static void expect_joining(void)
{
    assert_int_equal(CALLS(sg_captures_joining) - CALLS(sg_captures_joined), 1);
}

static void waits_may_join_captures(void **state)
{
    (void)state;
    cuStreamWaitEvent(stream_of(1), event_of(1), 0);
    assert_int_equal(CALLS(sg_captures_joined), 0);
    capture(true);
    fake.meanwhile = expect_joining;
    cuStreamWaitEvent(stream_of(1), event_of(1), 0);
    assert_int_equal(CALLS(sg_captures_joined), 1);
    assert_int_equal(CALLS(sg_captures_joining) - CALLS(sg_captures_joined), 0);
}

static void end_capture(void)
{
    capture(false);
}

static void captures_end_at_any_time(void **state)
{
    (void)state;
    capture(true);
    fake.meanwhile = end_capture;
    cuEventRecord(event_of(1), stream_of(1));
    expect_doubt(1);
    cuEventRecord(event_of(2), stream_of(1));
    capture(true);
    cuStreamWaitEvent(stream_of(2), event_of(2), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), 0);
}

static void events_from_before_are_unknown(void **state)
{
    (void)state;
    expect_doubt(70);
}

static void external_wait(void)
{
    FORGET(sg_core_slot_untracked_order);
    capture(true);
    cuStreamWaitEvent(stream_of(1), event_of(2), CU_EVENT_WAIT_EXTERNAL);
    capture(false);
    cuGraphLaunch(NULL, stream_of(3));
    expect(CALLS(sg_core_slot_untracked_order) == 1 && ARGUMENT(sg_core_slot_untracked_order, 2) == slot_of(3));
}

static void external_nodes_of_captures_are_not_followed(void **state)
{
    (void)state;
    capture(true);
    cuEventRecordWithFlags(event_of(1), stream_of(1), CU_EVENT_RECORD_EXTERNAL);
    capture(false);
    cuEventRecord(event_of(1), stream_of(1));
    expect_doubt(1);
    apart(external_wait);
}

int main(int count, char **argument)
{
    (void)argument;
    const struct CMUnitTest late[] = {
        cmocka_unit_test_setup(events_from_before_are_unknown, start_late),
        cmocka_unit_test_setup(the_legacy_stream_may_have_done_anything_before, start_late),
        cmocka_unit_test_setup(knowledge_is_of_the_event_and_not_of_its_handle, start_late),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(calls_of_a_newer_driver_may_be_missed, start_afresh),
        cmocka_unit_test_setup(the_legacy_stream_has_done_nothing_before, start_afresh),
        cmocka_unit_test_setup(events_that_could_not_be_kept_are_unknown, start_afresh),
        cmocka_unit_test_setup(what_a_full_table_could_not_say_is_not_believed_later, start_afresh),
        cmocka_unit_test_setup(taint_lasts_until_the_end, start_afresh),
        cmocka_unit_test_setup(knowledge_read_before_is_void, start_afresh),
        cmocka_unit_test_setup(records_that_others_wait_for_are_told_of_twice, start_afresh),
        cmocka_unit_test_setup(contexts_may_wait_for_unknown_events, start_afresh),
        cmocka_unit_test_setup(nothing_is_told_where_nobody_follows, start_afresh),
        cmocka_unit_test_setup(order_is_followed_as_configured, start_afresh),
        cmocka_unit_test_setup(nothing_is_told_where_all_is_recorded, start_afresh),
        cmocka_unit_test_setup(measuring_completes_both_events, start_afresh),
        cmocka_unit_test_setup(nothing_is_known_while_it_is_recorded, start_afresh),
        cmocka_unit_test_setup(events_of_other_processes_are_tainted, start_afresh),
        cmocka_unit_test_setup(an_end_that_was_not_seen_shows_in_the_next_beginning, start_afresh),
        cmocka_unit_test_setup(streams_go_before_the_driver_destroys_them, start_afresh),
        cmocka_unit_test_setup(what_is_complete_was_given_before_the_question, start_afresh),
        cmocka_unit_test_setup(waits_may_join_captures, start_afresh),
        cmocka_unit_test_setup(captures_end_at_any_time, start_afresh),
        cmocka_unit_test_setup(external_nodes_of_captures_are_not_followed, start_afresh),
    };
    if (count > 1)
        return cmocka_run_group_tests(late, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
