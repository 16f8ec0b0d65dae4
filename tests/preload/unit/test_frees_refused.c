/* Frees that can't have what they want wait for more, and never for less. */
#include "requests_steps.h"

/* A free that can't have its event is done with a wait; one for which the block was gone is the program's error. */
static void frees_fall_back_to_a_wait(void **state)
{
    static const struct {
        CUresult first, next;
        CUresult result;
        int frees;
        bool disabled;
    } list[] = {
        {CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUDA_SUCCESS, 2, false},
        {OUT, CUDA_SUCCESS, CUDA_SUCCESS, 2, false},
        {CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, 1, false},
        {CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_VALUE, 2, false},
        {CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, CUDA_SUCCESS, 2, true}, /* PyTorch gets it later */
        {CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED, CUDA_SUCCESS, 2, true},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        start_afresh(state);
        fake.free = list[i].first;
        fake.next_free = list[i].next;
        CUresult result = sg_memory_free(CORE, BLOCK, &torch);
        if (result != list[i].result || CALLS(sg_core_free) != list[i].frees ||
            CALLS(sg_core_disable) != list[i].disabled)
            fail_msg("%d: answers %d after %d frees", (int)i, (int)result, CALLS(sg_core_free));
        assert_int_equal(fake.tag.sync, list[i].frees == 2 ? SG_FREE_SYNC_STRICT : SG_FREE_SYNC_STREAM);
    }
    start_afresh(state);
    fake.free = CUDA_ERROR_UNKNOWN; /* a wait has nothing to fall back to */
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_ERROR_UNKNOWN);
    assert_int_equal(CALLS(sg_core_free), 1);
    fake.free = CUDA_ERROR_DEINITIALIZED;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_SUCCESS);
}

/* A capture that begins while the core frees: the free is put off as if it had been there before. */
static void capture_that_begins_meanwhile_puts_a_free_off(void **state)
{
    (void)state;
    fake.free = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_captures_defer_free), 1);
    fake.free = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_SUCCESS); /* where the driver allows its wait */
    assert_int_equal(fake.probes, 1);
    assert_int_equal(CALLS(sg_captures_defer_free), 2);
    fake.free = fake.probe = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(CALLS(sg_captures_defer_free), 2);
    fake.free = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    fake.free_block = CUDA_ERROR_INVALID_VALUE; /* it went with its context */
    assert_int_equal(sg_memory_free(CORE, BLOCK, &torch), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(CALLS(sg_captures_defer_free), 2);
    fake.block = CUDA_SUCCESS;
    atomic_store(&sg_graphs_blocks, 1); /* one that a graph uses, when the wait for it says so */
    fake.wait = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    fake.probe = CUDA_SUCCESS;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_captures_defer_free), 3);
}

/* A full card has no room for the small allocation by which the driver is asked, which says nothing of captures. */
static void full_card_forbids_no_free(void **state)
{
    (void)state;
    fake.live = true;
    fake.probe = OUT;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_captures_defer_free), 1);
    fake.own = STREAM; /* and the block is its own capture's */
    sg_annotate_on = true;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_adopt), 1);
    assert_int_equal(CALLS(sg_annotate_freed), 1);
}

/* An order is a number, so nothing is asked. A free that was put off before is not judged again. */
static void ordered_and_judged_frees_ask_for_nothing(void **state)
{
    struct sg_request judged = plain, kept = plain, pluggable = torch;
    (void)state;
    judged.driver_allowed = kept.was_deferred = pluggable.pluggable = true;
    fake.live = true;
    fake.probe = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &judged), CUDA_SUCCESS);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &kept), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_captures_defer_free), 2);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &named), CUDA_SUCCESS);
    assert_int_equal(fake.tag.sync, SG_FREE_SYNC_STREAM);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &pluggable), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_free), 2);
    assert_int_equal(fake.probes, 0);
    ANSWER(sg_graphs_retain, SG_GRAPHS_RETAINED);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_add_spare), 1);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &named), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_add_spare), 1);
}

/* In a capture a free as a step of it is no node, and ruins it as the driver's would. */
static void step_of_a_captured_stream_is_refused(void **state)
{
    (void)state;
    fake.live = true;
    ANSWER(sg_captures_capturing, true);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &in_order), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ANSWER(fake_real.cuStreamQuery, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &in_order), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    struct sg_request judged = in_order, kept = in_order;
    judged.driver_allowed = kept.was_deferred = true;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &judged), CUDA_SUCCESS);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &kept), CUDA_SUCCESS);
    ANSWER(sg_captures_capturing, false); /* another one is */
    assert_int_equal(sg_memory_free(CORE, BLOCK, &in_order), CUDA_SUCCESS);
}

/* Where no event over a context is to be had, and order is not followed, a step of a stream has one of its own. */
static void step_of_a_stream_is_waited_for_alone(void **state)
{
    static const struct {
        bool event, begun;
        CUresult create, step, waited_for;
        enum sg_free_sync sync;
        int waits;
    } list[] = {
        {false, false, 0, 0, 0, SG_FREE_SYNC_COMPLETE, 1},
        {true, false, 0, 0, 0, SG_FREE_SYNC_EVENT, 0},
        {false, true, 0, 0, 0, SG_FREE_SYNC_EVENT, 0}, /* captures: it could ruin one */
        {false, false, CUDA_ERROR_OUT_OF_MEMORY, 0, 0, SG_FREE_SYNC_EVENT, 0},
        {false, false, 0, CUDA_ERROR_INVALID_HANDLE, 0, SG_FREE_SYNC_EVENT, 0},
        {false, false, 0, 0, CUDA_ERROR_NOT_READY, SG_FREE_SYNC_EVENT, 1},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        start_afresh(state);
        atomic_store(&sg_following_order, false);
        atomic_store(&sg_captures_begun, list[i].begun);
        fake_driver.ctx_record_event = !list[i].event ? NULL : fake_driver.ctx_record_event;
        ANSWER(fake_driver.event_create, list[i].create);
        ANSWER(fake_driver.event_record, list[i].step);
        ANSWER(fake_driver.event_synchronize, list[i].waited_for);
        assert_int_equal(sg_memory_free(CORE, BLOCK, &in_order), CUDA_SUCCESS);
        if (fake.tag.sync != list[i].sync || CALLS(fake_driver.event_synchronize) != list[i].waits || fake.events)
            fail_msg("%d: sync %d, %d waits, %d events left", (int)i, (int)fake.tag.sync,
                CALLS(fake_driver.event_synchronize), fake.events);
    }
    struct sg_request late = in_order, over = in_order;
    late.was_deferred = true; /* its step has come already, and so has that of what was waited for */
    over.is_complete = true;
    start_afresh(state);
    fake_driver.ctx_record_event = true ? NULL : fake_driver.ctx_record_event;
    atomic_store(&sg_following_order, false);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &late), CUDA_SUCCESS);
    assert_int_equal(fake.tag.sync, SG_FREE_SYNC_EVENT);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &over), CUDA_SUCCESS);
    assert_int_equal(fake.tag.sync, SG_FREE_SYNC_COMPLETE);
    assert_int_equal(CALLS(fake_driver.event_synchronize) + fake.events, 0);
    assert_int_equal(recorded(), NO_RECORD);
}

/* Nothing is ordered on another device's stream, or for an address that is no block: the core says what is wrong. */
static void order_is_of_blocks_and_their_device(void **state)
{
    (void)state;
    fake.place_device = 1;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &in_order), CUDA_SUCCESS);
    assert_false(fake.tag.in_order);
    fake.place_device = 0;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &in_order), CUDA_SUCCESS);
    assert_true(fake.tag.in_order);
    assert_int_equal(fake.tag.slot, SLOT);
    FORGET(sg_core_record_stream);
    fake.free = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(sg_memory_free(CORE, BLOCK + 1, &in_order), CUDA_ERROR_INVALID_VALUE);
    fake.block = CUDA_ERROR_INVALID_VALUE;
    fake.free = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &in_order), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(recorded(), NO_RECORD);
    assert_int_equal(sg_memory_record_stream(CORE, BLOCK, STREAM), CUDA_ERROR_INVALID_VALUE);
    fake.block = CUDA_SUCCESS;
    fake.on_device = false;
    ANSWER(sg_core_record_stream, CUDA_ERROR_INVALID_VALUE); /* freed by another thread */
    assert_int_equal(sg_memory_record_stream(CORE, BLOCK, STREAM), CUDA_ERROR_INVALID_VALUE);
}

/* Memory of the driver's that graphs use stays until they are gone; freed twice it is an error. */
static void driver_s_memory_of_graphs_is_kept(void **state)
{
    (void)state;
    atomic_store(&sg_graphs_blocks, 1);
    ANSWER(sg_graphs_retain, SG_GRAPHS_RETAINED);
    assert_int_equal(sg_memory_free_passthrough(2 * BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_adopt), 0);
    fake.live = true; /* and what is freed in a capture is its graph's */
    assert_int_equal(sg_memory_free_passthrough(2 * BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_adopt), 1);
    assert_int_equal(sg_memory_free_passthrough(2 * BLOCK, &plain), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_adopt), 1);
    ANSWER(sg_graphs_retain, SG_GRAPHS_RETAINED_BEFORE);
    assert_int_equal(sg_memory_free_passthrough(2 * BLOCK, &torch), CUDA_ERROR_INVALID_VALUE);
    fake.no_core = true;
    assert_int_equal(sg_memory_free_passthrough(2 * BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_retain), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(frees_fall_back_to_a_wait),
        TEST(capture_that_begins_meanwhile_puts_a_free_off),
        TEST(full_card_forbids_no_free),
        TEST(ordered_and_judged_frees_ask_for_nothing),
        TEST(step_of_a_captured_stream_is_refused),
        TEST(step_of_a_stream_is_waited_for_alone),
        TEST(order_is_of_blocks_and_their_device),
        TEST(driver_s_memory_of_graphs_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
