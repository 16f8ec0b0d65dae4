/* Clocks go where events, waits and captures put them. A stream whose order is not known becomes untracked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "process/hooks.h"
#include "order_fakes.h"
#include "serve/deferred_frees.h"
#include "track/graph_blocks.h"

/* What a graph waits for that is noted for good: words of memory, else an event. */
static bool by_words;

static void a_wait_gives_what_was_known_at_the_record(void **state)
{
    (void)state;
    assert_int_equal(cuEventRecord(event_of(1), stream_of(1)), CUDA_SUCCESS);
    uint64_t time = fake.time;
    assert_int_equal(cuEventRecord(event_of(2), stream_of(1)), CUDA_SUCCESS);
    assert_int_equal(cuStreamWaitEvent(stream_of(2), event_of(1), 0), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_ordered_after), 1);
    assert_int_equal(ARGUMENT(sg_core_ordered_after, 2), slot_of(2));
    assert_int_equal(latest_waited().time, time);
    assert_int_equal(CALLS(sg_core_slot_untracked_order), 0);
    assert_int_equal(cuEventQuery(event_of(1)), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_completed), 1);
    assert_int_equal(latest_completed().time, time);
    fake.answer = CUDA_ERROR_NOT_READY;
    assert_int_equal(cuEventQuery(event_of(2)), CUDA_ERROR_NOT_READY);
    assert_int_equal(CALLS(sg_core_completed), 1);
}

/* Whose entry is the last one: nothing else may have made streams before. */
static void the_next_stream_of_a_handle_is_another(void **state)
{
    CUstream stream = stream_of(3);
    (void)state;
    for (int i = 0; i < 3; i++)
        cuEventRecord(event_of(3), stream_of(3));
    fake.ids[3] = 803;
    fake.slots[803] = 0;
    cuStreamCreate(&stream, 0);
    cuEventRecord(event_of(4), stream_of(3));
    assert_int_not_equal(fake.slots[803], 0);
}

static void failures_teach_nothing(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    fake.answer = CUDA_ERROR_INVALID_HANDLE;
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    cuEventSynchronize(event_of(1));
    cuStreamSynchronize(stream_of(1));
    cuCtxSynchronize();
    assert_int_equal(CALLS(sg_core_ordered_after) + CALLS(sg_core_completed) + CALLS(sg_core_slot_untracked_order), 0);
    cuEventRecord(event_of(1), stream_of(1)); /* perhaps recorded all the same */
    fake.answer = CUDA_SUCCESS;
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), 0);
    assert_int_equal(ARGUMENT(sg_core_slot_untracked_order, 2), slot_of(2));
}

static void record_again(void)
{
    cuEventRecord(event_of(1), stream_of(3));
}

static void destroy_and_create(void)
{
    CUevent event = event_of(1);
    cuEventDestroy_v2(event);
    cuEventCreate(&event, 0);
}

static void a_record_meanwhile_voids_what_was_read(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    fake.meanwhile = record_again;
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), 0);
    assert_int_equal(CALLS(sg_core_slot_untracked_order), 1);
    fake.meanwhile = record_again;
    cuEventSynchronize(event_of(1));
    assert_int_equal(CALLS(sg_core_completed), 0);
    fake.meanwhile = destroy_and_create;
    cuEventSynchronize(event_of(1));
    assert_int_equal(CALLS(sg_core_completed), 0);
}

/* Nobody knows which of two records that overlap the driver took last. */
static void records_that_overlap_are_not_believed(void **state)
{
    (void)state;
    fake.meanwhile = record_again;
    cuEventRecord(event_of(1), stream_of(1));
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    cuEventSynchronize(event_of(1));
    assert_int_equal(CALLS(sg_core_ordered_after) + CALLS(sg_core_completed), 0);
    cuEventRecord(event_of(1), stream_of(1));
    cuEventSynchronize(event_of(1));
    assert_int_equal(CALLS(sg_core_completed), 1);
}

static void an_event_never_recorded_changes_nothing(void **state)
{
    (void)state;
    cuStreamWaitEvent(stream_of(2), event_of(9), 0);
    cuEventSynchronize(event_of(9));
    assert_int_equal(CALLS(sg_core_ordered_after) + CALLS(sg_core_completed) + CALLS(sg_core_slot_untracked_order), 0);
    cuEventRecord(event_of(1), stream_of(1));
    destroy_and_create();
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    cuEventSynchronize(event_of(1));
    assert_int_equal(CALLS(sg_core_ordered_after) + CALLS(sg_core_completed) + CALLS(sg_core_slot_untracked_order), 0);
}

static void opacity_travels_with_events(void **state)
{
    (void)state;
    cuStreamWaitValue32(stream_of(1), 0, 0, 0);
    assert_int_equal(ARGUMENT(sg_core_slot_untracked_order, 2), slot_of(1));
    cuEventRecord(event_of(1), stream_of(1));
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), 1);
    assert_int_equal(ARGUMENT(sg_core_slot_untracked_order, 2), slot_of(2));
    assert_int_equal(CALLS(sg_core_slot_untracked_order), 2);
}

static void tainted_events_give_no_knowledge(void **state)
{
    (void)state;
    CUevent shared = event_of(2), events[4] = {event_of(1), shared, event_of(3), event_of(4)};
    cuGraphAddEventRecordNode(NULL, NULL, NULL, 0, event_of(1));
    cuEventCreate(&shared, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    cuIpcGetEventHandle(NULL, event_of(3));
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT};
    memcpy(&attribute.value, &events[3], sizeof events[3]);
    const CUlaunchConfig config = {.hStream = stream_of(1), .attrs = &attribute, .numAttrs = 1};
    cuLaunchKernelEx(&config, NULL, NULL, NULL);
    assert_int_equal(ARGUMENT(sg_core_slot_submitted, 2), slot_of(1));
    for (int i = 0; i < 4; i++) {
        int opaques = CALLS(sg_core_slot_untracked_order);
        cuEventRecord(events[i], stream_of(1));
        cuEventSynchronize(events[i]);
        cuStreamWaitEvent(stream_of(10 + (uintptr_t)i), events[i], 0);
        assert_int_equal(CALLS(sg_core_slot_untracked_order), opaques + 1);
    }
    assert_int_equal(CALLS(sg_core_ordered_after) + CALLS(sg_core_completed), 0);
    destroy_and_create(); /* the first one's end */
    cuEventRecord(event_of(1), stream_of(1));
    cuEventSynchronize(event_of(1));
    assert_int_equal(CALLS(sg_core_completed), 1);
}

static void whole_contexts_are_not_followed(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    cuCtxRecordEvent((CUcontext)1, event_of(1));
    cuEventSynchronize(event_of(1));
    assert_int_equal(CALLS(sg_core_completed), 0);
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(ARGUMENT(sg_core_slot_untracked_order, 2), slot_of(2));
    cuCtxWaitEvent((CUcontext)1, event_of(1));
    assert_int_equal(CALLS(sg_core_slot_untracked_order), 3); /* of both streams */
    fake.told_some = 0;
    cuStreamQuery(stream_of(1));
    cuStreamSynchronize(stream_of(1));
    assert_int_equal(CALLS(sg_core_completed), 0); /* its next step may come after more */
    assert_int_equal(fake.told_some, 2); /* what the host may show to others all the same */
    cuCtxSynchronize();
    assert_int_equal(CALLS(sg_core_completed), 1);
}

static void captures_credit_nobody(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    capture(true);
    cuEventRecord(event_of(1), stream_of(1));
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    capture(false);
    cuEventSynchronize(event_of(1));
    assert_int_equal(CALLS(sg_core_ordered_after) + CALLS(sg_core_completed) + CALLS(sg_core_slot_untracked_order), 0);
}

static void a_handle_is_not_a_stream(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    sg_slot first = slot_of(1);
    cuStreamDestroy_v2(stream_of(1));
    assert_int_equal(ARGUMENT(sg_core_slot_gone, 2), first);
    fake.ids[1] = 801; /* the next one of that handle */
    fake.slots[801] = 0;
    cuStreamWaitEvent(stream_of(1), event_of(1), 0);
    assert_int_not_equal(ARGUMENT(sg_core_ordered_after, 2), first);
    assert_int_equal(ARGUMENT(sg_core_ordered_after, 2), fake.slots[801]);
}

static void the_default_streams_are_told_apart(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), NULL);
    cuEventRecord_ptsz(event_of(2), NULL);
    cuStreamWaitEvent(CU_STREAM_LEGACY, event_of(2), 0);
    assert_int_equal(ARGUMENT(sg_core_ordered_after, 2), fake.slots[901]);
    cuStreamWaitEvent_ptsz(NULL, event_of(1), 0);
    assert_int_equal(ARGUMENT(sg_core_ordered_after, 2), fake.slots[902]);
    assert_int_not_equal(fake.slots[901], fake.slots[902]);
}

static void work_is_noted_and_unfollowed_streams_too(void **state)
{
    (void)state;
    cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream_of(5), NULL, NULL);
    assert_int_equal(ARGUMENT(sg_core_slot_submitted, 2), slot_of(5));
    assert_true(sg_streams_complete());
    cuGraphLaunch(NULL, stream_of(5));
    assert_int_equal(CALLS(sg_core_slot_submitted), 2);
    assert_int_equal(CALLS(sg_core_slot_untracked_order), 0);
    if (by_words)
        cuGraphAddBatchMemOpNode(NULL, NULL, NULL, 0, NULL);
    else
        cuGraphAddEventWaitNode(NULL, NULL, NULL, 0, event_of(1));
    cuGraphLaunch(NULL, stream_of(5));
    assert_int_equal(ARGUMENT(sg_core_slot_untracked_order, 2), slot_of(5));
    fake.no_slots = true;
    cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream_of(6), NULL, NULL);
    assert_false(sg_streams_complete());
}

/* Not where none is kept, and not where the driver refused. */
static void memory_of_a_graph_comes_back_when_it_goes(void **state)
{
    (void)state;
    cuGraphDestroy(NULL);
    cuGraphExecDestroy(NULL);
    assert_int_equal(CALLS(sg_memory_settle), 0);
    ANSWER(sg_graphs_retain_freed, true);
    cuGraphDestroy(NULL);
    cuGraphExecDestroy(NULL);
    assert_int_equal(CALLS(sg_memory_settle), 2);
    fake.answer = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(cuGraphDestroy(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(CALLS(sg_memory_settle), 2);
}

int main(int count, char **argument)
{
    (void)argument;
    by_words = count > 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_next_stream_of_a_handle_is_another, start_afresh),
        cmocka_unit_test_setup(a_wait_gives_what_was_known_at_the_record, start_afresh),
        cmocka_unit_test_setup(failures_teach_nothing, start_afresh),
        cmocka_unit_test_setup(a_record_meanwhile_voids_what_was_read, start_afresh),
        cmocka_unit_test_setup(records_that_overlap_are_not_believed, start_afresh),
        cmocka_unit_test_setup(an_event_never_recorded_changes_nothing, start_afresh),
        cmocka_unit_test_setup(opacity_travels_with_events, start_afresh),
        cmocka_unit_test_setup(tainted_events_give_no_knowledge, start_afresh),
        cmocka_unit_test_setup(captures_credit_nobody, start_afresh),
        cmocka_unit_test_setup(a_handle_is_not_a_stream, start_afresh),
        cmocka_unit_test_setup(the_default_streams_are_told_apart, start_afresh),
        cmocka_unit_test_setup(work_is_noted_and_unfollowed_streams_too, start_afresh),
        cmocka_unit_test_setup(memory_of_a_graph_comes_back_when_it_goes, start_afresh),
        cmocka_unit_test_setup(whole_contexts_are_not_followed, start_afresh), /* the last: it is remembered for good */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
