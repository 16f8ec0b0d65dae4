/* Allocations that the core can't serve, and frees that can't be done as they were to be, against a core and a driver
   made up here: who is asked next, what the program is told, and what is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "serve/alloc.h"
#include "serve/callers.h"
#include "serve/free.h"
#include "serve/free_mode.h"
#include "serve/used_streams.h"
#include "track/captures.h"
#include "services/hazard_annotations.h"
#include "serve/deferred_frees.h"
#include "track/free_policy.h"
#include "track/graph_blocks.h"
#include "requests_world.h"
#include "report/refusals.h"
#include "track/streams.h"

/* What the core answers where there is no memory, and where it serves none. */
#define OUT CUDA_ERROR_OUT_OF_MEMORY
#define NO CUDA_ERROR_NOT_SUPPORTED

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
    char read_back[8192];
    int ends[2], before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_true(before >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    fake.text = text;
    CUresult result = allocate(&plain, bytes);
    sg_refusals_raise();
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    ssize_t length = read(ends[0], read_back, sizeof read_back);
    close(ends[0]);
    assert_int_equal(result, OUT);
    assert_true(length >= 0);
    return (size_t)length;
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
    } list[] = {
        {3 * BLOCK, 0, 3 * BLOCK, 0},            /* gives back and asks again */
        {3 * BLOCK, 0, 5 * BLOCK, 0},            /* more than before */
        {4 * BLOCK, 0, 2 * BLOCK, 0},            /* less, at most by half */
        {4 * BLOCK, 0, 2 * BLOCK - 1, 1},        /* something else */
        {4 * BLOCK, 4 * BLOCK, 4 * BLOCK, 0},    /* twice */
        {4 * BLOCK, 3 * BLOCK, 2 * BLOCK, 0},    /* less each time */
        {4 * BLOCK, 5 * BLOCK, 5 * BLOCK, 1},    /* another, of which the first knows nothing */
        {4 * BLOCK, BLOCK, BLOCK, 1},
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
        assert_int_equal(allocate(&plain, list[i].served), CUDA_SUCCESS);
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
        {CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, CUDA_SUCCESS, 2, true}, /* PyTorch hears of it later */
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

/* By order it is a number: nothing is asked. What was put off before is not judged again. */
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

/* Of another device's stream, or of what is no block, nothing is ordered: the core says what is wrong. */
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

/* Nothing is asked for while a capture is active, nor from inside. */
static void marks_are_made_beside_no_capture(void **state)
{
    (void)state;
    fake.live = true;
    sg_memory_fence();
    fake.live = false;
    fake.no_core = true;
    sg_memory_fence();
    assert_int_equal(CALLS(sg_core_poll), 0);
    fake.no_core = false;
    sg_memory_fence();
    assert_int_equal(CALLS(sg_core_poll), SG_DEVICES_MAX);
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

#define TEST(name) cmocka_unit_test_setup(name, start_afresh)

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
        TEST(frees_fall_back_to_a_wait),
        TEST(capture_that_begins_meanwhile_puts_a_free_off),
        TEST(full_card_forbids_no_free),
        TEST(ordered_and_judged_frees_ask_for_nothing),
        TEST(only_ordered_tensors_are_given_again),
        TEST(step_of_a_captured_stream_is_refused),
        TEST(step_of_a_stream_is_waited_for_alone),
        TEST(order_is_of_blocks_and_their_device),
        TEST(driver_s_memory_of_graphs_is_kept),
        TEST(marks_are_made_beside_no_capture),
        TEST(calls_of_torch_are_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
