/* No order follows from a call that the driver refuses or lacks, and streams that were not seen are not forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "process/hooks.h"
#include "process/process.h"
#include "order_fakes.h"
#include "track/streams.h"

/* What the core was told of anything. */
static int told(void)
{
    return CALLS(sg_core_ordered_after) + CALLS(sg_core_completed) + CALLS(sg_core_slot_untracked_order) +
           CALLS(sg_core_slot_gone) + CALLS(sg_core_slot_submitted) + fake.tolds + fake.told_some;
}

/* Whether all streams are known after `function`, in a process of its own: what is missed is missed for good. */
static bool is_complete_after(void (*function)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        function();
        exit(sg_streams_complete() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 0;
}

static void everything(void)
{
    CUstream stream = stream_of(5);
    CUevent event = event_of(6);
    cuStreamCreate(&stream, 0);
    cuEventRecord(event_of(1), stream_of(1));
    cuEventRecord_ptsz(event_of(1), NULL);
    cuEventRecordWithFlags(event_of(1), stream_of(1), 0);
    cuEventRecordWithFlags_ptsz(event_of(1), stream_of(1), 0);
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    cuStreamWaitEvent_ptsz(stream_of(2), event_of(1), 0);
    cuEventQuery(event_of(1));
    cuEventSynchronize(event_of(1));
    cuStreamQuery(stream_of(1));
    cuStreamSynchronize_ptsz(NULL);
    cuCtxSynchronize();
    cuCtxSynchronize_v2((CUcontext)1);
    cuCtxWaitEvent((CUcontext)1, event_of(1));
    cuStreamWaitValue32(stream_of(1), 64, 1, 0);
    cuGraphLaunch(NULL, stream_of(1));
    cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream_of(1), NULL, NULL);
    cuEventCreate(&event, 0);
    cuStreamDestroy_v2(stream_of(1));
}

/* Calls of ours are no calls of the program's. */
static void nothing_is_learnt_from_inside(void **state)
{
    (void)state;
    sg_self.inside = true;
    everything();
    sg_self.inside = false;
    assert_int_equal(told(), 0);
}

/* What the driver refused has not happened. */
static void nothing_is_learnt_from_what_failed(void **state)
{
    CUevent event = event_of(9);
    (void)state;
    fake.answer = CUDA_ERROR_INVALID_HANDLE;
    assert_int_equal(cuStreamWaitEvent(stream_of(2), event_of(1), 0), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuEventQuery(event_of(1)), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuEventSynchronize(event_of(1)), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuStreamQuery(stream_of(1)), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuStreamSynchronize(stream_of(1)), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuCtxSynchronize_v2((CUcontext)1), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuCtxWaitEvent((CUcontext)1, event_of(1)), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuGreenCtxWaitEvent((CUgreenCtx)16, event_of(1)), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuEventCreate(&event, 0), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuEventCreate(NULL, 0), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(CALLS(sg_core_ordered_after) + CALLS(sg_core_completed) + CALLS(sg_core_slot_untracked_order) +
                         fake.tolds + fake.told_some,
        0);
}

static void come_inside(void)
{
    sg_self.inside = true;
}

/* Nor where there is nobody to tell once the driver has answered. */
static void nothing_is_learnt_where_the_core_has_gone(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    for (int call = 0; call < 4; call++) {
        fake.meanwhile = come_inside;
        (void)(call == 0 ? cuStreamQuery(stream_of(1)) : call == 1 ? cuEventQuery(event_of(1)) :
            call == 2 ? cuCtxSynchronize() : cuStreamWaitEvent(stream_of(2), event_of(1), 0));
        sg_self.inside = false;
    }
    assert_int_equal(CALLS(sg_core_completed) + CALLS(sg_core_ordered_after) + fake.tolds + fake.told_some, 0);
}

/* Handles that stand for nothing are nobody's. */
static void nothing_is_made_of_no_handle(void **state)
{
    (void)state;
    cuIpcGetEventHandle(NULL, NULL);
    cuCtxRecordEvent((CUcontext)1, NULL);
    cuGreenCtxRecordEvent((CUgreenCtx)16, NULL);
    cuEventDestroy(NULL);
    cuEventDestroy_v2(NULL);
    cuEventCreate(NULL, 0);
    cuStreamCreate(NULL, 0);
    cuStreamDestroy(NULL);
    cuStreamDestroy_v2(CU_STREAM_PER_THREAD);
    assert_int_equal(told(), 0);
    cuEventRecord(event_of(1), stream_of(1));
    cuStreamWaitEvent(stream_of(2), event_of(1), 0);
    assert_int_equal(CALLS(sg_core_ordered_after), 1); /* events are known as before */
}

static void record_it(void)
{
    cuEventRecord(event_of(1), stream_of(1));
}

static void record_the_default_one(void)
{
    fake.current = 1;
    cuEventRecord(event_of(1), NULL);
}

static void ask_about_it(void)
{
    cuStreamQuery(stream_of(1));
}

static void destroy_it(void)
{
    cuStreamDestroy_v2(stream_of(1));
}

/* A stream that can't be told from others is not followed, and from then on not all are known. */
static void streams_without_a_number_are_missed(void **state)
{
    (void)state;
    assert_true(is_complete_after(record_it));
    for (int i = 0; i < 2; i++) {
        fake.old = i == 0;
        fake.id_answer = i ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
        assert_false(is_complete_after(record_it));
        assert_true(is_complete_after(ask_about_it)); /* which gives it no work */
        assert_true(is_complete_after(destroy_it));
    }
}

static void streams_of_no_context_are_not_followed(void **state)
{
    (void)state;
    fake.context_answer = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    assert_true(is_complete_after(record_it)); /* it takes no work any more */
    assert_null(sg_streams_context_of(stream_of(1)));
    fake.context_answer = CUDA_SUCCESS;
    fake.strange = true;
    assert_false(is_complete_after(record_it));
    fake.strange = false;
    fake.current_answer = CUDA_ERROR_DEINITIALIZED;
    assert_true(is_complete_after(record_the_default_one));
    fake.current = 1;
    assert_null(sg_streams_context_of(NULL));
    int device = 7;
    assert_false(sg_streams_device(NULL, &device));
    fake.current_answer = CUDA_SUCCESS;
    assert_true(sg_streams_device(NULL, &device));
    assert_int_equal(device, 0);
}

static void streams_without_a_slot_are_missed(void **state)
{
    (void)state;
    fake.no_slots = true;
    assert_false(is_complete_after(record_it));
}

/* What is not said of a stream may be anything. */
static void stream_of_unknown_kind_is_opaque(void **state)
{
    struct sg_tracked_stream place;
    (void)state;
    fake.flags_answer = CUDA_ERROR_INVALID_HANDLE;
    assert_true(sg_streams_track(sg_process_core(), stream_of(1), false, &place));
    assert_int_equal(fake.id.flags & (SG_STREAM_BLOCKING | SG_STREAM_UNTRACKED_ORDER),
        SG_STREAM_BLOCKING | SG_STREAM_UNTRACKED_ORDER);
    assert_true(sg_streams_is_untracked_order(&place));
}

/* Devices that there can't be are served nothing. */
static void no_device_is_served(void **state)
{
    (void)state;
    sg_streams_serve(-1);
    sg_streams_serve(SG_DEVICES_MAX);
    struct sg_tracked_stream place;
    assert_true(sg_streams_track_on(sg_process_core(), stream_of(1), 0, &place));
    assert_false(sg_streams_track_on(sg_process_core(), stream_of(1), SG_DEVICES_MAX, &place));
    assert_false(sg_streams_track_on(sg_process_core(), stream_of(1), SG_DEVICES_MAX - 1, &place));
    fake.no_slots = true;
    assert_false(sg_streams_track_on(sg_process_core(), stream_of(3), 1, &place));
}

/* A whole context waits for an event of which nothing is known: whoever has waited may have told of all. */
static void waiting_contexts_show_unknown_work_to_the_host(void **state)
{
    (void)state;
    cuEventRecord(event_of(1), stream_of(1));
    fake.strange = true; /* the context is of no device that is known */
    cuCtxWaitEvent((CUcontext)1, event_of(1));
    assert_int_equal(CALLS(sg_core_slot_untracked_order), 1); /* the stream is that context's all the same */
    fake.strange = false;
    cuGreenCtxWaitEvent((CUgreenCtx)16, event_of(2));
    assert_int_equal(fake.tolds, 0); /* it was never recorded */
    cuCtxRecordEvent((CUcontext)1, event_of(3));
    cuGreenCtxWaitEvent((CUgreenCtx)16, event_of(3));
    assert_true(fake.tolds > 0);
}

#define TEST(name) cmocka_unit_test_setup(name, start_afresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_learnt_from_inside),
        TEST(nothing_is_learnt_from_what_failed),
        TEST(nothing_is_learnt_where_the_core_has_gone),
        TEST(nothing_is_made_of_no_handle),
        TEST(streams_without_a_number_are_missed),
        TEST(streams_of_no_context_are_not_followed),
        TEST(streams_without_a_slot_are_missed),
        TEST(stream_of_unknown_kind_is_opaque),
        TEST(waiting_contexts_show_unknown_work_to_the_host),
        TEST(no_device_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
