/* Calls by which a program takes memory beside ours, each by its own name, against a driver and a core made up here:
   what runs out is made once more, where something was given back for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fakes.h"
#include "report/refusals.h"
#include "services/outside_trace.h"
#include "serve/deferred_frees.h"
#include "serve/make_room.h"
#include "track/captures.h"
#include "process/hooks.h"
#include "process/capture_mode.h"
#include "process/process.h"
#include "services/trim.h"

static struct {
    CUresult answer;
    int times; /* how often the driver answers that */
    size_t idle[SG_DEVICES_MAX];
    bool live, relaxes, no_core;
    bool others, inside_already, over; /* others give something back; what this process is */
    int calls, settled, asked_others, trims, inside, relaxed;
} fake;

static CUresult answer(void)
{
    fake.calls++;
    assert_int_equal(fake.inside, 0);
    return fake.times-- > 0 ? fake.answer : CUDA_SUCCESS;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define TAKES(symbol, base, version, threads, noted, parameters, arguments) \
    static CUresult real_##symbol parameters { return answer(); }
#define GIVES TAKES
#include "process/external_alloc_hooks.def"
#pragma GCC diagnostic pop

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {
#define TAKES(symbol, base, version, threads, noted, parameters, arguments) .symbol = real_##symbol,
#define GIVES TAKES
#include "process/external_alloc_hooks.def"
    };
    return &real;
}

struct sg_core *sg_enter(void)
{
    fake.inside += !fake.no_core;
    return fake.no_core ? NULL : (struct sg_core *)&fake;
}

bool sg_trim_ask_others_of(int device)
{
    assert_int_equal(device, -1);
    assert_int_equal(fake.inside, 0);
    fake.asked_others++;
    return fake.others;
}

bool sg_thread_inside(void)
{
    return fake.inside_already;
}

bool sg_process_over(void)
{
    return fake.over;
}

void sg_leave(void)
{
    fake.inside--;
}

bool sg_captures_active(void)
{
    return fake.live;
}

bool sg_capture_mode_relax(CUstreamCaptureMode *ret_mode)
{
    (void)ret_mode;
    fake.relaxed += fake.relaxes;
    return fake.relaxes;
}

void sg_capture_mode_restore(CUstreamCaptureMode *mode)
{
    (void)mode;
    fake.relaxed--;
}

void sg_memory_settle_refused(struct sg_core *core)
{
    (void)core;
    assert_int_equal(fake.trims, 0); /* what it frees can be given back too */
    fake.settled++;
}

size_t sg_core_trim(struct sg_core *core, int device, size_t keep)
{
    size_t given = fake.idle[device];
    (void)core;
    assert_int_equal(keep, 0);
    fake.idle[device] = 0;
    fake.trims++;
    return given;
}

typedef CUresult any_call(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
static const struct call {
    const char *name;
    any_call *function;
} calls[] = {
#define TAKES(symbol, base, version, threads, noted, parameters, arguments) {#symbol, (any_call *)(void (*)(void))symbol},
#include "process/external_alloc_hooks.def"
};

static uint64_t result_room; /* for what a call makes */

/* Physical memory is of the host or of a device. */
static CUresult make(const struct call *call)
{
    static const CUmemAllocationProp prop = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    bool physical = strcmp(call->name, "cuMemCreate") == 0;
    return call->function((uintptr_t)&result_room, 0, physical ? (uintptr_t)&prop : 0, 0, 0, 0, 0, 0);
}

/* Makes each of them, which must come to the driver `expected` times and answer `result`. */
static void expect(int expected, CUresult result)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        size_t idle = fake.idle[0], far = fake.idle[SG_DEVICES_MAX - 1];
        int times = fake.times;
        fake.calls = fake.settled = fake.trims = 0;
        FORGET(sg_refusals_add_outside);
        CUresult got = make(&calls[i]);
        if (fake.calls != expected || got != result)
            fail_msg("%s: called %d times, not %d; answers %d", calls[i].name, fake.calls, expected, (int)got);
        if (CALLS(sg_refusals_add_outside) != (result == CUDA_ERROR_OUT_OF_MEMORY))
            fail_msg("%s: its answer %d was noted %d times as refused", calls[i].name, (int)got,
                CALLS(sg_refusals_add_outside));
        assert_int_equal(fake.inside, 0);
        fake.idle[0] = idle;
        fake.idle[SG_DEVICES_MAX - 1] = far;
        fake.times = times;
    }
}

static int start(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    ANSWER(sg_outside_given, -1);
    ANSWER(sg_outside_pool_device, -1);
    return 0;
}

static void what_works_is_made_once(void **state)
{
    (void)state;
    fake.idle[0] = 1;
    expect(1, CUDA_SUCCESS);
    assert_int_equal(fake.trims, 0);
}

static void what_runs_out_is_made_again_for_any_devices_memory(void **state)
{
    (void)state;
    fake.answer = CUDA_ERROR_OUT_OF_MEMORY;
    fake.times = 1;
    fake.idle[0] = 1;
    expect(2, CUDA_SUCCESS);
    assert_int_equal(fake.settled, 1);
    fake.idle[0] = 0;
    fake.idle[SG_DEVICES_MAX - 1] = 1;
    expect(2, CUDA_SUCCESS);
    fake.times = 2; /* it was not enough */
    expect(2, CUDA_ERROR_OUT_OF_MEMORY);
}

static void what_runs_out_fails_where_nothing_is_idle(void **state)
{
    (void)state;
    fake.answer = CUDA_ERROR_OUT_OF_MEMORY;
    fake.times = 1;
    expect(1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake.trims, SG_DEVICES_MAX);
}

/* Idle pages go back in relaxed mode. Nothing is asked of the driver that could ruin a capture: no wait, and nothing at
   all by a thread that cannot relax. */
static void what_runs_out_while_a_capture_is_live(void **state)
{
    (void)state;
    fake.answer = CUDA_ERROR_OUT_OF_MEMORY;
    fake.times = 1;
    fake.idle[0] = 1;
    fake.live = true;
    expect(1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake.trims + fake.settled, 0);
    fake.times = 1;
    fake.relaxes = true;
    expect(2, CUDA_SUCCESS);
    assert_int_equal(fake.trims, SG_DEVICES_MAX);
    assert_int_equal(fake.settled + fake.relaxed, 0);
}

/* Before the first allocation, and for what we call ourselves. */
static void what_runs_out_fails_without_a_core(void **state)
{
    (void)state;
    fake.answer = CUDA_ERROR_OUT_OF_MEMORY;
    fake.times = 1;
    fake.no_core = true;
    expect(1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_false(sg_made_room_by(NULL));
}

/* What others hold idle is asked for where this process has nothing, or not enough; also by a process without a core, and
   beside a capture. */
static void others_are_asked_where_own_memory_is_not_enough(void **state)
{
    (void)state;
    fake.answer = CUDA_ERROR_OUT_OF_MEMORY;
    fake.others = true;
    fake.times = 1;
    expect(2, CUDA_SUCCESS);
    fake.idle[0] = 1;
    expect(2, CUDA_SUCCESS); /* this process has enough */
    fake.times = 2;
    expect(3, CUDA_SUCCESS);
    fake.times = 3;
    expect(3, CUDA_ERROR_OUT_OF_MEMORY);
    fake.times = 1;
    fake.live = true;
    expect(2, CUDA_SUCCESS);
    fake.no_core = true;
    expect(2, CUDA_SUCCESS);
    int asked = fake.asked_others;
    fake.inside_already = true;
    expect(1, CUDA_ERROR_OUT_OF_MEMORY);
    fake.inside_already = false;
    fake.over = true;
    expect(1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake.asked_others, asked);
}

static void other_errors_are_the_programs(void **state)
{
    static const CUresult errors[] = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY, CUDA_ERROR_LAUNCH_FAILED};
    (void)state;
    fake.times = 1;
    fake.idle[0] = 1;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        fake.answer = errors[i];
        expect(1, errors[i]);
    }
    assert_int_equal(fake.trims, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_works_is_made_once, start),
        cmocka_unit_test_setup(what_runs_out_is_made_again_for_any_devices_memory, start),
        cmocka_unit_test_setup(what_runs_out_fails_where_nothing_is_idle, start),
        cmocka_unit_test_setup(what_runs_out_while_a_capture_is_live, start),
        cmocka_unit_test_setup(what_runs_out_fails_without_a_core, start),
        cmocka_unit_test_setup(others_are_asked_where_own_memory_is_not_enough, start),
        cmocka_unit_test_setup(other_errors_are_the_programs, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
