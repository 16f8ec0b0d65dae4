/* What the core asks of the driver while captures begin, go on and end, against a driver made up here. A question that
   would ruin a capture is not asked, or asked in relaxed mode. No capture begins while it is asked. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "balance.h"
#include "serve/capture_safe_driver.h"
#include "serve/free.h"
#include "track/captures.h"
#include "clock.h"
#include "serve/deferred_frees.h"
#include "track/graph_blocks.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "rest.h"
#include "track/streams.h"
#include "track/torch_mode.h"
#include "track/context_pins.h"

atomic_bool sg_following_order = true;
static __thread CUstreamCaptureMode thread_mode;

static struct {
    int calls, unheld, strict; /* of the driver: all, those that a capture could begin beside, those in strict mode */
    int uses;
    int busy;               /* how often a query says that work is not complete */
    atomic_int begun, recorded;
    void (*in_record)(void), (*in_begin)(void), (*in_look)(void);
    CUcontext current, recorded_context;
    CUstream capturing;     /* NULL: `captured` */
    int pushes, events;
    bool plain;             /* ctx_synchronize was called */
    uint64_t takes;         /* an event over a context, ns */
    uint64_t now, late;     /* a clock that stands still but for so many ns at each rest */
    int rests;
    long longest;           /* of those, ns */
    CUresult refused;       /* what the driver answers to what an event over a context takes, */
    int accepted;           /* after so many of those calls */
} fake;

static CUstream const captured = (CUstream)64, other = (CUstream)128;
static CUevent const event = (CUevent)192;

/* In place of the library's: nothing depends on how quick the machine is. */
void sg_rest(long ns)
{
    fake.rests++;
    fake.longest = ns > fake.longest ? ns : fake.longest;
    fake.now += fake.late;
    usleep(1);
}

uint64_t sg_clock_coarse_ns(void)
{
    return fake.now;
}

uint64_t sg_clock_ns(void)
{
    return fake.now;
}

static CUresult accept(void)
{
    return fake.refused != CUDA_SUCCESS && fake.accepted-- == 0 ? fake.refused : CUDA_SUCCESS;
}

/* The driver. */
static void called(void)
{
    fake.calls++;
    fake.unheld += sg_self.exclusions == 0;
    fake.strict += thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

static CUresult event_query(CUevent asked)
{
    (void)asked;
    called();
    return fake.busy-- > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_record(CUevent asked, CUstream stream)
{
    (void)asked, (void)stream;
    called();
    if (fake.in_record)
        fake.in_record();
    fake.recorded++;
    return CUDA_SUCCESS;
}

static CUresult event_synchronize(CUevent asked)
{
    (void)asked;
    fail_msg("nothing may be waited for under the lock");
    return CUDA_SUCCESS;
}

static CUresult ctx_record_event(CUcontext context, CUevent asked)
{
    (void)asked;
    called();
    fake.recorded_context = context;
    fake.now += fake.takes;
    assert_ptr_equal(context, fake.current);
    return accept();
}

static CUresult ctx_synchronize(void)
{
    fake.plain = true;
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    (void)flags;
    CUresult result = accept();
    *ret = event;
    fake.events += result == CUDA_SUCCESS;
    return result;
}

static CUresult event_destroy(CUevent asked)
{
    (void)asked;
    fake.events--;
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret)
{
    void (*look)(void) = fake.in_look;
    fake.in_look = NULL;
    if (look)
        look();
    *ret = fake.current;
    return accept();
}

static CUcontext below;

static CUresult push(CUcontext context)
{
    if (accept() != CUDA_SUCCESS)
        return fake.refused;
    fake.pushes++;
    below = fake.current;
    fake.current = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret)
{
    fake.pushes--;
    *ret = fake.current;
    fake.current = below;
    return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    bool is = stream == (fake.capturing ? fake.capturing : captured) && sg_captures_active();
    *ret = is ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult exchange(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode)
{
    (void)stream, (void)mode;
    if (fake.in_begin)
        fake.in_begin();
    fake.begun++;
    return CUDA_SUCCESS;
}

static CUresult begin_plainly(CUstream stream)
{
    return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult begin_to_graph(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
    size_t count, CUstreamCaptureMode mode)
{
    (void)graph, (void)nodes, (void)edges, (void)count;
    return begin(stream, mode);
}

static CUresult end(CUstream stream, CUgraph *ret)
{
    (void)stream, (void)ret;
    return CUDA_SUCCESS;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {
        .cuStreamBeginCapture = begin_plainly, .cuStreamBeginCapture_ptsz = begin_plainly,
        .cuStreamBeginCapture_v2 = begin, .cuStreamBeginCapture_v2_ptsz = begin,
        .cuStreamBeginCaptureToGraph = begin_to_graph, .cuStreamBeginCaptureToGraph_ptsz = begin_to_graph,
        .cuStreamEndCapture = end, .cuStreamEndCapture_ptsz = end,
    };
    return &real;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {
        .event_query = event_query,
        .event_record = event_record,
        .event_synchronize = event_synchronize,
        .ctx_record_event = ctx_record_event,
        .ctx_synchronize = ctx_synchronize,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .ctx_get_current = get_current,
        .ctx_push = push,
        .ctx_pop = pop,
        .stream_is_capturing = is_capturing,
        .exchange_capture_mode = exchange,
    };
    return &driver;
}

/* The rest of the library. */
static struct sg_conf conf;

const struct sg_conf *sg_process_conf(void)
{
    return &conf;
}

struct sg_thread *sg_thread_find(void)
{
    return sg_self_found = &sg_self;
}

int sg_context_pin(CUcontext context)
{
    (void)context;
    fake.uses++;
    return 0;
}

void sg_context_unpin(int use)
{
    (void)use;
    fake.uses--;
}

struct sg_core *sg_enter(void)
{
    return balance_begin((struct sg_core *)&fake);
}

CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)core, (void)address, (void)ret;
    return CUDA_ERROR_NOT_FOUND;
}

const struct sg_upward_calls sg_upward_calls = {.free = sg_memory_free};

static struct sg_driver gated;

static int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    fake.current = (CUcontext)1;
    sg_captures_make_driver_safe(sg_process_driver(), &gated);
    assert_false(sg_captures_active());
    return 0;
}

static void expect_calls(int calls)
{
    assert_int_equal(fake.calls, calls);
    assert_int_equal(fake.unheld, 0);
    assert_int_equal(sg_self.exclusions, 0);
}

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

static void begin_now(void)
{
    cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
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

/* What an event over a context takes may fail at each step, and is undone. */
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

/* A thread of ours waits beside the program's by an event where captures may begin, else as it is told to. */
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

typedef CUresult begin_fn(void);
static begin_fn *way; /* to begin a capture */

static CUresult by_plain(void)
{
    return cuStreamBeginCapture(captured);
}

static CUresult by_plain_own(void)
{
    return cuStreamBeginCapture_ptsz(captured);
}

static CUresult by_mode(void)
{
    return cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult by_mode_own(void)
{
    return cuStreamBeginCapture_v2_ptsz(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult to_graph(void)
{
    return cuStreamBeginCaptureToGraph(captured, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult to_graph_own(void)
{
    return cuStreamBeginCaptureToGraph_ptsz(captured, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static begin_fn *const ways[] = {by_plain, by_plain_own, by_mode, by_mode_own, to_graph, to_graph_own};
enum { WAYS = sizeof ways / sizeof *ways };

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
        cmocka_unit_test_setup(programs_that_capture_are_waited_for_by_events, start_afresh),
        cmocka_unit_test_setup(captures_that_begin_at_the_last_moment_are_left_alone, start_afresh),
        cmocka_unit_test_setup(captures_end_with_their_context, start_afresh),
        cmocka_unit_test_setup(waits_for_events_are_bounded_and_in_slices, start_afresh),
        cmocka_unit_test_setup(waits_that_cannot_be_had_leave_nothing, start_afresh),
        cmocka_unit_test_setup(slow_events_are_not_waited_for_by, start_afresh),
        cmocka_unit_test_setup(our_threads_wait_by_events_too, start_afresh),
        cmocka_unit_test_setup(a_capture_is_its_threads, start_afresh),
        cmocka_unit_test_setup(default_streams_are_captured_each_for_itself, start_afresh),
        cmocka_unit_test_setup(no_capture_begins_while_something_is_asked, start_afresh),
        cmocka_unit_test_setup(nothing_is_asked_while_a_capture_begins, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
