/* Where the core has no memory the next is asked in the right order, and the program's error is the driver's. */
#include "requests_steps.h"

#include "process/worker_thread.h"

static CUresult allocate(const struct sg_request *request, size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result = sg_memory_alloc(CORE, bytes, request, &address);
    assert_int_equal(result == CUDA_SUCCESS, address != 0);
    return result;
}

/* Others are asked for memory, then the driver, unless a limit keeps what it has from this process. */
static void others_and_the_driver_are_asked(void **state)
{
    static const struct {
        CUresult core[2], driver; /* what they answer */
        bool helps, limited;
        CUresult result;
        int mallocs, probes, passed_on;
        bool disabled;
    } list[] = {
        {{CUDA_SUCCESS}, CUDA_SUCCESS, false, false, CUDA_SUCCESS, 1, 0, 0, false},
        {{OUT, CUDA_SUCCESS}, OUT, true, false, CUDA_SUCCESS, 2, 0, 0, false},
        {{OUT, OUT}, CUDA_SUCCESS, true, false, CUDA_SUCCESS, 2, 1, 1, false},
        {{OUT}, CUDA_SUCCESS, false, false, CUDA_SUCCESS, 1, 1, 1, false},
        {{OUT}, OUT, false, false, OUT, 1, 1, 0, false},
        {{OUT}, CUDA_SUCCESS, false, true, OUT, 1, 0, 0, false},
        {{NO}, CUDA_SUCCESS, false, true, CUDA_SUCCESS, 1, 1, 1, false},
        {{NO}, OUT, false, false, OUT, 1, 1, 0, false},
        {{CUDA_ERROR_LAUNCH_FAILED}, CUDA_SUCCESS, false, false, CUDA_ERROR_LAUNCH_FAILED, 1, 0, 0, true},
        {{NO}, CUDA_ERROR_ILLEGAL_ADDRESS, false, false, CUDA_ERROR_ILLEGAL_ADDRESS, 1, 1, 0, true},
        {{CUDA_ERROR_INVALID_CONTEXT}, CUDA_SUCCESS, false, false, CUDA_ERROR_INVALID_CONTEXT, 1, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        start_afresh(state);
        fake.conf.oom_report = SG_OOM_NEVER;
        fake.conf.per_process_memory_fraction = 1;
        memcpy(fake.malloc, list[i].core, sizeof list[i].core);
        fake.probe = list[i].driver;
        ANSWER(sg_trim_ask_others, list[i].helps);
        ANSWER(sg_core_is_limited, list[i].limited);
        CUresult result = allocate(&plain, BLOCK);
        if (result != list[i].result || fake.mallocs != list[i].mallocs || fake.probes != list[i].probes ||
            CALLS(sg_core_passthrough) != list[i].passed_on || CALLS(sg_core_disable) != list[i].disabled)
            fail_msg("%d: answers %d; core %d, driver %d, passed on %d", (int)i, (int)result, fake.mallocs, fake.probes,
                CALLS(sg_core_passthrough));
        assert_int_equal(CALLS(sg_oom_report), 0);
        assert_int_equal(CALLS(sg_trim_ask_others),
            list[i].core[0] == OUT || (list[i].core[0] == NO && list[i].driver == OUT));
    }
}

/* Allocates in vain, with a report of this length at hand, and returns how much was written of it. */
static size_t reported(size_t bytes, size_t text)
{
    fake.text = text;
    FORGET(sg_log_write);
    CUresult result = allocate(&plain, bytes);
    sg_refusals_raise();
    assert_int_equal(result, OUT);
    assert_true(CALLS(sg_log_write) <= 1);
    return CALLS(sg_log_write) ? ARGUMENT(sg_log_write, 1) : 0;
}

/* The first time, every time or never; not where nobody could have so much, nor where it is not we who ran out. */
static void running_out_is_reported(void **state)
{
    enum { ROOM = 4096 };
    (void)state;
    fake.conf.per_process_memory_fraction = 1;
    for (int i = 0; i < 32; i++)
        fake.malloc[i] = OUT;
    fake.probe = OUT;
    fake.conf.oom_report = SG_OOM_NEVER;
    assert_int_equal(reported(BLOCK, 10), 0);
    fake.conf.oom_report = SG_OOM_FIRST;
    assert_int_equal(reported((size_t)1 << 47, 10), 0);
    assert_int_equal(reported(BLOCK, 10), 10);
    assert_int_equal(reported(BLOCK, 10), 0);
    fake.conf.oom_report = SG_OOM_EVERY;
    assert_int_equal(reported(BLOCK, ROOM - 1), ROOM - 1);
    assert_int_equal(reported(BLOCK, 2 * ROOM), ROOM - 1); /* cut */
    ANSWER(sg_core_is_limited, true);
    assert_int_equal(reported(BLOCK, 10), 10);
    ANSWER(sg_core_is_limited, false);
    fake.malloc[fake.mallocs] = NO;
    assert_int_equal(reported(BLOCK, 10), 0);
}

/* What became of a refused allocation: counted as a failure or not, and reported then. */
static void retries_are_no_failures(void **state)
{
    static const struct {
        size_t refused, again, served;
        int failed; /* by then */
        int settled; /* made good by the program, as the trace says: a call that is served in the end is none */
    } list[] = {
        {3 * BLOCK, 0, 3 * BLOCK, 0, 1},         /* gives back and asks again */
        {3 * BLOCK, 0, 5 * BLOCK, 0, 1},         /* more than before */
        {4 * BLOCK, 0, 2 * BLOCK, 0, 1},         /* less, at most by half */
        {4 * BLOCK, 0, 2 * BLOCK - 1, 1, 0},     /* something else */
        {4 * BLOCK, 4 * BLOCK, 4 * BLOCK, 0, 1}, /* twice */
        {4 * BLOCK, 3 * BLOCK, 2 * BLOCK, 0, 1}, /* less each time */
        {4 * BLOCK, 5 * BLOCK, 5 * BLOCK, 1, 1}, /* another, of which the first knows nothing */
        {4 * BLOCK, BLOCK, BLOCK, 1, 1},
    };
    (void)state;
    fake.conf.oom_report = SG_OOM_NEVER;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int before = CALLS(sg_core_failed);
        fake.probe = fake.malloc[fake.mallocs] = OUT;
        assert_int_equal(allocate(&plain, list[i].refused), OUT);
        fake.malloc[fake.mallocs] = OUT;
        if (list[i].again)
            assert_int_equal(allocate(&plain, list[i].again), OUT);
        assert_int_equal(atomic_load(&sg_refusals_open), 1);
        fake.malloc[fake.mallocs] = CUDA_SUCCESS;
        FORGET(sg_core_settled);
        assert_int_equal(allocate(&plain, list[i].served), CUDA_SUCCESS);
        assert_int_equal(CALLS(sg_core_settled), list[i].settled);
        if (list[i].settled)
            assert_int_equal(ARGUMENT(sg_core_settled, 2), SEGALLOC_SETTLED_SERVED);
        assert_int_equal(CALLS(sg_core_failed) - before, list[i].failed);
        assert_int_equal(atomic_load(&sg_refusals_open), 0);
    }
}

/* Memory by other calls makes good as much; a little says nothing. PyTorch's question after a refusal is its error. */
static void refusals_end_in_other_ways(void **state)
{
    (void)state;
    fake.conf.oom_report = SG_OOM_NEVER;
    int before = CALLS(sg_core_failed);
    for (int way = 0; way < 5; way++) {
        fake.probe = fake.malloc[fake.mallocs] = OUT;
        assert_int_equal(allocate(&plain, 4 * BLOCK), OUT);
        FORGET(sg_core_settled);
        sg_refusals_serve_elsewhere(BLOCK);
        sg_refusals_ask();
        assert_int_equal(atomic_load(&sg_refusals_open), 1);
        if (way == 0)
            sg_refusals_serve_elsewhere(2 * BLOCK);
        if (way == 1)
            sg_refusals_raise();
        if (way == 2) {
            sg_refusals_of_torch();
            sg_refusals_ask();
        }
        if (way == 3)
            sg_refusals_end();
        if (way == 4)
            sg_refusals_forget();
        assert_int_equal(atomic_load(&sg_refusals_open), 0);
        static const enum segalloc_settled settled[] = {SEGALLOC_SETTLED_ELSEWHERE, SEGALLOC_SETTLED_FAILED,
            SEGALLOC_SETTLED_FAILED, 0, 0};
        static const int failed[] = {0, 1, 2, 3, 3};
        assert_int_equal(ARGUMENT(sg_core_settled, 2), settled[way]);
        assert_int_equal(CALLS(sg_core_failed) - before, failed[way]);
    }
    sg_refusals_raise();
    assert_int_equal(CALLS(sg_core_failed) - before, 3);
}

/* A limit of the configuration is one too. */
static void configured_limit_keeps_the_driver_out(void **state)
{
    (void)state;
    fake.conf.per_process_memory_fraction = 1;
    fake.conf.oom_report = SG_OOM_NEVER;
    fake.conf.limit_bytes = 1 << 20;
    fake.malloc[0] = OUT;
    assert_int_equal(allocate(&plain, BLOCK), OUT);
    fake.conf.limit_bytes = 0;
    fake.conf.limit_fraction = 0.8;
    fake.malloc[fake.mallocs] = OUT;
    assert_int_equal(allocate(&plain, BLOCK), OUT);
    assert_int_equal(fake.probes, 0);
}

/* Memory that waits for captures to end is waited for, and the core asked again; not for ever. */
static void allocation_waits_for_captures(void **state)
{
    enum { TRIES = 16 };
    for (int i = 0; i < 5; i++) {
        start_afresh(state);
        fake.conf.per_process_memory_fraction = 1;
        fake.conf.oom_report = SG_OOM_NEVER;
        fake.probe = OUT;
        fake.malloc[0] = OUT;
        fake.live = i != 3;
        fake.drops = true; /* it ends */
        atomic_store(&sg_captures_deferred, i == 0);
        fake.pending = i == 1 || i == 4;
        ANSWER(sg_captures_runs_deferred, i == 3);
        fake.no_stats = i == 4;
        bool held = i != 2 && i != 4; /* nothing is kept back for it, or nobody knows */
        assert_int_equal(allocate(&plain, BLOCK), held ? CUDA_SUCCESS : OUT);
        assert_int_equal(CALLS(sg_captures_await), held);
        assert_int_equal(fake.mallocs, 1 + held);
    }
    start_afresh(state);
    fake.conf.per_process_memory_fraction = 1;
    fake.conf.oom_report = SG_OOM_NEVER;
    fake.probe = OUT;
    for (int i = 0; i < 32; i++)
        fake.malloc[i] = OUT;
    ANSWER(sg_captures_runs_deferred, true); /* for ever */
    assert_int_equal(allocate(&plain, BLOCK), OUT);
    assert_int_equal(fake.mallocs, 1 + TRIES);
}

/* Memory that only graphs keep is there once the driver has told that they are gone, and the work of their last launches is
   done. That may take too long. Where no freed block is kept nothing is waited for, and nothing in a capture. */
static void allocation_waits_for_graphs_that_are_gone(void **state)
{
    static const struct {
        int kept_freed;
        bool live;
        CUresult wait, core[3], result;
        int mallocs, tells, context_waits;
    } list[] = {
        {0, false, CUDA_SUCCESS, {OUT, OUT}, OUT, 1, 0, 0},
        {1, false, CUDA_SUCCESS, {OUT}, CUDA_SUCCESS, 2, 1, 0},
        {1, false, CUDA_SUCCESS, {OUT, OUT, OUT}, OUT, 2, 1, 0},
        {2, false, CUDA_SUCCESS, {OUT, OUT}, CUDA_SUCCESS, 3, 2, 1},
        {9, false, CUDA_SUCCESS, {OUT, OUT, OUT}, OUT, 3, 2, 1},
        {9, false, CUDA_ERROR_NOT_READY, {OUT, OUT}, OUT, 2, 1, 1},
        {9, true, CUDA_SUCCESS, {OUT, OUT}, OUT, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        start_afresh(state);
        fake.conf.per_process_memory_fraction = 1;
        fake.conf.oom_report = SG_OOM_NEVER;
        fake.probe = OUT;
        fake.live = list[i].live;
        ANSWER_FIRST(list[i].kept_freed, sg_graphs_retain_freed, true);
        ANSWER(sg_context_wait, list[i].wait);
        memcpy(fake.malloc, list[i].core, sizeof list[i].core);
        CUresult result = allocate(&plain, BLOCK);
        if (result != list[i].result || fake.mallocs != list[i].mallocs ||
            CALLS(sg_graphs_await_destroyed) != list[i].tells || CALLS(sg_context_wait) != list[i].context_waits)
            fail_msg("%d: answers %d; core %d, told %d, waits %d", (int)i, (int)result, fake.mallocs,
                CALLS(sg_graphs_await_destroyed), CALLS(sg_context_wait));
        if (list[i].tells)
            assert_true(ARGUMENT(sg_graphs_await_destroyed, 0)); /* it has been refused */
    }
}

/* What a capture kept, which ended while the core was asked, may serve now. */
static void captures_that_end_meanwhile_are_not_waited_for(void **state)
{
    (void)state;
    fake.conf.per_process_memory_fraction = 1;
    fake.conf.oom_report = SG_OOM_NEVER;
    fake.probe = OUT;
    fake.malloc[0] = fake.malloc[1] = OUT;
    fake.ends = 2;
    assert_int_equal(allocate(&plain, BLOCK), CUDA_SUCCESS);
    assert_int_equal(fake.mallocs, 3);
    assert_int_equal(CALLS(sg_captures_await), 0);
}

/* Growing is allowed beside a capture in relaxed mode alone, and so is the driver's own allocation. */
static void captures_are_not_disturbed(void **state)
{
    (void)state;
    fake.live = true;
    ANSWER(sg_capture_mode_relax, true);
    fake.conf.per_process_memory_fraction = 1;
    fake.malloc[0] = NO;
    fake.own = STREAM;
    assert_int_equal(allocate(&plain, BLOCK), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_core_passthrough), 1);
    assert_int_equal(CALLS(sg_capture_mode_relax), 2);
    assert_int_equal(CALLS(sg_capture_mode_restore), 2);
    assert_int_equal(CALLS(sg_graphs_adopt), 1); /* it is the graph's of the capture that the thread began */
    fake.own = NULL;
    ANSWER(sg_capture_mode_relax, false);
    assert_int_equal(allocate(&plain, BLOCK), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_adopt), 1);
    assert_int_equal(CALLS(sg_capture_mode_restore), 2);
}

/* A tensor of PyTorch's that was freed in the capture is given out again in it. */
static void captured_tensors_are_given_again(void **state)
{
    (void)state;
    fake.live = fake.again = true;
    sg_annotate_on = true;
    assert_int_equal(allocate(&torch, BLOCK), CUDA_SUCCESS);
    assert_int_equal(fake.mallocs, 0);
    assert_int_equal(CALLS(sg_annotate_given), 1);
    fake.again = false;
    assert_int_equal(allocate(&torch, BLOCK), CUDA_SUCCESS);
    assert_int_equal(fake.mallocs, 1);
    assert_int_equal(CALLS(sg_annotate_given), 2);
    fake.conf.per_process_memory_fraction = 1;
    fake.malloc[1] = NO; /* the driver's own is nothing to declare */
    assert_int_equal(allocate(&torch, BLOCK), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_annotate_given), 2);
}

/* What has no meaning is the driver's to refuse. */
static void wrong_allocations_are_the_driver_s(void **state)
{
    CUdeviceptr address;
    (void)state;
    fake.probe = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(sg_memory_alloc(CORE, BLOCK, &plain, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_memory_alloc(CORE, 0, &plain, &address), CUDA_ERROR_INVALID_VALUE);
    fake.current = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(sg_memory_alloc(CORE, BLOCK, &plain, &address), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake.probes, 3);
    assert_int_equal(fake.mallocs, 0);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &plain), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(CALLS(sg_core_free), 0);
}

/* What a tensor's stream is to have again is what it frees in order: not where frees wait, nor where it has none. */
static void only_ordered_tensors_are_given_again(void **state)
{
    const struct sg_request nowhere = {.torch = true};
    (void)state;
    fake.live = true;
    ANSWER(sg_graphs_retain, SG_GRAPHS_RETAINED);
    assert_int_equal(sg_memory_free(CORE, BLOCK, &nowhere), CUDA_SUCCESS);
    fake.conf.free_sync = SG_FREE_SYNC_STRICT;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_retain), 2);
    assert_int_equal(CALLS(sg_graphs_add_spare), 0);
    fake.conf.free_sync = SG_FREE_SYNC_EVENT;
    assert_int_equal(sg_memory_free(CORE, BLOCK, &torch), CUDA_SUCCESS);
    assert_int_equal(CALLS(sg_graphs_add_spare), 1);
}

/* Nothing is asked for while a capture is active, nor from inside. */
static void marks_are_made_beside_no_capture(void **state)
{
    (void)state;
    fake.live = true;
    sg_memory_fence(true);
    fake.live = false;
    fake.no_core = true;
    sg_memory_fence(true);
    assert_int_equal(CALLS(sg_core_poll), 0);
    fake.no_core = false;
    sg_memory_fence(true);
    assert_int_equal(CALLS(sg_core_poll), SG_DEVICES_MAX);
}

/* The helper thread is at a wait for less than was freed: before a capture that wait is let end, and another one begins. Before a
   wait of the program's it is enough that it is at one. */
static void helper_waits_for_all_before_a_capture(void **state)
{
    for (int capture = 0; capture < 2; capture++) {
        start_afresh(state);
        ANSWER(sg_captures_waits_aside, true);
        ANSWER(sg_core_awaits_another, true);
        ANSWER_FIRST(3, sg_worker_has_begun, true);
        sg_memory_fence(capture);
        assert_int_equal(CALLS(sg_core_poll), capture ? 2 * SG_DEVICES_MAX : SG_DEVICES_MAX);
        assert_int_equal(CALLS(sg_core_awaits_another), capture ? 2 : 0);
    }
}

/* A call is PyTorch's where that does not cache. */
static void calls_of_torch_are_its_own(void **state)
{
    (void)state;
    assert_true(sg_memory_origin(SG_CALLER_TORCH).torch && sg_memory_origin(SG_CALLER_TORCH).has_stream);
    assert_false(sg_memory_origin(SG_CALLER_OTHER).torch);
    fake.no_stream = true;
    assert_true(sg_memory_origin(SG_CALLER_TORCH).torch && !sg_memory_origin(SG_CALLER_TORCH).has_stream);
    ANSWER(sg_torch_direct, false);
    assert_false(sg_memory_origin(SG_CALLER_TORCH).torch);
    assert_false(sg_memory_guesses());
    sg_memory_torch_plugged(); /* it frees in order, and has told of no other streams yet */
    sg_memory_torch_plugged();
    assert_true(sg_memory_guesses());
    sg_memory_torch_records();
    sg_memory_torch_records();
    assert_false(sg_memory_guesses());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(running_out_is_reported), /* the first of a process */
        TEST(retries_are_no_failures),
        TEST(refusals_end_in_other_ways),
        TEST(others_and_the_driver_are_asked),
        TEST(configured_limit_keeps_the_driver_out),
        TEST(allocation_waits_for_graphs_that_are_gone),
        TEST(allocation_waits_for_captures),
        TEST(captures_that_end_meanwhile_are_not_waited_for),
        TEST(captures_are_not_disturbed),
        TEST(captured_tensors_are_given_again),
        TEST(wrong_allocations_are_the_driver_s),
        TEST(only_ordered_tensors_are_given_again),
        TEST(marks_are_made_beside_no_capture),
        TEST(helper_waits_for_all_before_a_capture),
        TEST(calls_of_torch_are_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
