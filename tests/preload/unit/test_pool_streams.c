/* Streams of pools, against a driver made up here: they are waited for while a capture is active, in relaxed mode and never
   by a call that a capture would be ruined by. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rest.h"
#include "process/capture_mode.h"
#include "process/hooks.h"
#include "process/process.h"
#include "track/captures.h"
#include "track/context_pins.h"
#include "track/default_streams.h"
#include "track/pool_streams.h"

enum { STREAMS = 64, LIMIT_NS = 2000000000 };
static const CUcontext context = (CUcontext)8, gone = (CUcontext)16;

static struct {
    uint64_t now_ns;
    int busy;                 /* queries until the stream is done; -1: it never is */
    CUstream captured, lost;  /* lost: its context has gone */
    int asked, waited, status_asked, excluded, pinned;
    unsigned joins;
    bool relaxed, cannot_relax, no_driver;
    bool (*within)(void);     /* called within the first query */
    CUcontext current;
    CUstream recorded; /* the last record's */
    unsigned events, records, event_queries, event_waits;
    bool legacy_is_implicit; /* a blocking stream is captured */
    bool records_over, captures; /* the driver has events over contexts; a capture is active */
    unsigned records_over_all;
    void (*meanwhile)(void); /* called within a record over a context */
} fake;
struct sg_context_table sg_context_table;

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    bool by_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    assert_true(fake.excluded && (by_default || (fake.relaxed && fake.pinned)));
    fake.status_asked++;
    if (stream == CU_STREAM_LEGACY && fake.legacy_is_implicit)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *ret = stream == fake.captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult get_ctx(CUstream stream, CUcontext *ret)
{
    *ret = stream == fake.lost ? gone : context;
    return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
    assert_true(fake.relaxed && fake.excluded && fake.pinned);
    assert_true(stream != fake.captured && stream != fake.lost && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD);
    fake.asked++;
    if (fake.within && fake.within())
        fake.within = NULL;
    if (!fake.busy)
        return CUDA_SUCCESS;
    fake.busy -= fake.busy > 0;
    return CUDA_ERROR_NOT_READY;
}

/* Pools give memory back at this call, which may not have to wait. */
static CUresult synchronize(CUstream stream)
{
    (void)stream;
    assert_true(fake.relaxed && fake.excluded && !fake.busy);
    fake.waited++;
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret)
{
    *ret = fake.current;
    return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *ret, unsigned flags)
{
    assert_int_equal(flags, CU_EVENT_DISABLE_TIMING);
    *ret = (CUevent)(uintptr_t)(4096 + 16 * fake.events++);
    return CUDA_SUCCESS;
}

static CUresult record_event(CUevent event, CUstream stream)
{
    assert_true(
        fake.excluded && event && stream != fake.captured && !(stream == CU_STREAM_LEGACY && fake.legacy_is_implicit));
    fake.recorded = stream;
    fake.records++;
    return CUDA_SUCCESS;
}

static CUresult query_event(CUevent event)
{
    assert_true(fake.relaxed && fake.pinned && event);
    fake.event_queries++;
    if (!fake.busy)
        return CUDA_SUCCESS;
    fake.busy -= fake.busy > 0;
    return CUDA_ERROR_NOT_READY;
}

static CUresult synchronize_event(CUevent event)
{
    assert_true(fake.relaxed && event && !fake.busy);
    fake.event_waits++;
    return CUDA_SUCCESS;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {.cuStreamQuery = query, .cuStreamSynchronize = synchronize};
    return &real;
}

/* Would end a capture. */
static CUresult record_over(CUcontext of, CUevent event)
{
    assert_true(of == context && fake.current == context && fake.pinned && fake.excluded && !fake.captures && event);
    fake.records_over_all++;
    if (fake.meanwhile)
        fake.meanwhile();
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_process_driver(void)
{
    static struct sg_driver driver = {.stream_is_capturing = is_capturing,
        .stream_get_ctx = get_ctx,
        .ctx_get_current = get_current,
        .event_create = create_event,
        .event_record = record_event,
        .event_query = query_event,
        .event_synchronize = synchronize_event};
    driver.ctx_record_event = fake.records_over ? record_over : NULL; /* of CUDA 12.5 */
    return fake.no_driver ? NULL : &driver;
}

bool sg_capture_mode_relax(CUstreamCaptureMode *ret_mode)
{
    *ret_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    fake.relaxed = !fake.cannot_relax;
    return fake.relaxed;
}

void sg_capture_mode_restore(CUstreamCaptureMode *mode)
{
    assert_int_equal(*mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    fake.relaxed = false;
}

void sg_captures_exclude(void)
{
    fake.excluded++;
}

void sg_captures_allow(void)
{
    fake.excluded--;
}

bool sg_captures_active(void)
{
    return fake.captures;
}

unsigned sg_captures_joins(void)
{
    return fake.joins;
}

int sg_context_pin(CUcontext asked)
{
    fake.pinned += asked == context;
    return asked == context ? 3 : -1;
}

void sg_context_unpin(int use)
{
    assert_int_equal(use, 3);
    fake.pinned--;
}

int sg_context_pin_current(CUcontext asked)
{
    fake.current = asked;
    return sg_context_pin(asked);
}

void sg_context_unpin_current(int use)
{
    fake.current = NULL; /* as in a thread that had none */
    sg_context_unpin(use);
}

static CUstream stream(int number)
{
    return (CUstream)(uintptr_t)(256 + 16 * number);
}

__thread struct sg_thread sg_self;

/* The ring is empty before each test. */
static int start(void **state)
{
    (void)state;
    fake = (__typeof__(fake)){0};
    for (int i = 0; i < 4 * STREAMS; i++)
        sg_pool_streams_gone(stream(i));
    sg_pool_streams_context_gone(context);
    sg_pool_streams_context_gone(gone);
    fake.current = context;
    sg_context_table = (struct sg_context_table){.entry[2].context = context, .used = 3, .alive = 1};
    return 0;
}

static void a_stream_is_waited_for(void **state)
{
    (void)state;
    assert_false(sg_pool_streams_waited(LIMIT_NS));
    sg_pool_streams_note(stream(1), false);
    sg_pool_streams_note(stream(1), false); /* once is enough */
    fake.busy = 3;
    assert_true(sg_pool_streams_waited(LIMIT_NS));
    assert_true(fake.asked == 4 && fake.waited == 1 && fake.status_asked == 1);
    assert_true(!fake.relaxed && !fake.excluded && !fake.pinned);
}

/* A stream that is captured would be ruined by the question. It is not asked about, and keeps nobody. */
static void captured_streams_are_left_alone(void **state)
{
    (void)state;
    sg_pool_streams_note(stream(1), false);
    fake.captured = stream(1);
    assert_false(sg_pool_streams_waited(LIMIT_NS));
    assert_int_equal(fake.asked, 0);
    sg_pool_streams_note(stream(2), false);
    assert_true(sg_pool_streams_waited(LIMIT_NS));
    assert_int_equal(fake.waited, 1);
}

static bool joins_a_capture(void)
{
    fake.captured = stream(1);
    fake.joins++;
    return true;
}

static void a_stream_that_joins_meanwhile_is_let_go(void **state)
{
    (void)state;
    sg_pool_streams_note(stream(1), false);
    fake.busy = -1;
    fake.within = joins_a_capture;
    assert_false(sg_pool_streams_waited(LIMIT_NS));
    assert_true(fake.asked == 1 && fake.status_asked == 2);
}

/* The legacy stream is ordered with captured ones, and a thread's own is not to be named by others. An event stands for each. */
static void default_streams_are_not_named(void **state)
{
    (void)state;
    const struct {
        CUstream stream;
        bool per_thread;
        CUstream named;
    } ways[] = {{NULL, false, CU_STREAM_LEGACY}, {NULL, true, CU_STREAM_PER_THREAD},
        {CU_STREAM_LEGACY, true, CU_STREAM_LEGACY}, {CU_STREAM_PER_THREAD, false, CU_STREAM_PER_THREAD}};
    for (unsigned i = 0; i < 4; i++) {
        sg_pool_streams_note(ways[i].stream, ways[i].per_thread);
        assert_true(fake.recorded == ways[i].named && fake.records == i + 1);
    }
    assert_int_equal(fake.events, 2);
    fake.busy = 3;
    assert_true(sg_pool_streams_waited(LIMIT_NS));
    assert_true(fake.event_queries == 5 && fake.event_waits == 2 && fake.asked == 0);
    assert_true(!fake.relaxed && !fake.excluded && !fake.pinned);
    fake.current = NULL; /* nothing is known of it then */
    sg_pool_streams_note(NULL, false);
    assert_int_equal(fake.records, 4);
}

/* A record would end the capture of a blocking stream, or be part of that of a thread's own one. */
static void no_record_touches_a_capture(void **state)
{
    (void)state;
    fake.legacy_is_implicit = true;
    fake.captured = CU_STREAM_PER_THREAD;
    sg_pool_streams_note(NULL, false);
    sg_pool_streams_note(NULL, true);
    assert_int_equal(fake.records, 0);
    fake.legacy_is_implicit = false;
    fake.captured = NULL;
    sg_pool_streams_note(NULL, false);
    sg_pool_streams_note(NULL, true);
    assert_int_equal(fake.records, 2);
}

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all_alive; /* no two have their variables at one place */

static void *free_in_own_stream(void *unused)
{
    pthread_mutex_lock(&one_at_a_time);
    sg_pool_streams_note(NULL, true);
    pthread_mutex_unlock(&one_at_a_time);
    pthread_barrier_wait(&all_alive);
    return unused;
}

/* A thread has a stream and so an event of its own. Where there are no more, that of another serves. */
static void each_thread_has_an_event(void **state)
{
    (void)state;
    pthread_t thread[2 * SG_DEFAULT_STREAMS];
    assert_int_equal(pthread_barrier_init(&all_alive, NULL, 2 * SG_DEFAULT_STREAMS), 0);
    for (int i = 0; i < 2 * SG_DEFAULT_STREAMS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, free_in_own_stream, NULL), 0);
    for (int i = 0; i < 2 * SG_DEFAULT_STREAMS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(fake.events, SG_DEFAULT_STREAMS);
    assert_int_equal(fake.records, 2 * SG_DEFAULT_STREAMS);
    sg_pool_streams_note(NULL, true);
    assert_true(sg_pool_streams_waited(LIMIT_NS));
    assert_int_equal(fake.event_waits, fake.events);
}

/* Where the driver has events over contexts, a free costs a mark. One event stands for the streams of all threads. */
static void a_capture_comes_after_what_was_freed(void **state)
{
    (void)state;
    fake.records_over = true;
    for (int i = 0; i < 3; i++) {
        sg_pool_streams_note(NULL, false);
        sg_pool_streams_note(NULL, true);
    }
    assert_int_equal(fake.events + fake.records + fake.records_over_all, 0);
    sg_default_streams_settle();
    assert_true(fake.events == 1 && fake.records_over_all == 1);
    sg_default_streams_settle(); /* nothing was freed since */
    assert_int_equal(fake.records_over_all, 1);
    fake.captures = true;
    fake.busy = 3;
    assert_true(sg_pool_streams_waited(LIMIT_NS));
    assert_true(fake.event_queries == 4 && fake.event_waits == 1);
    /* In the capture the event over the context stays as it is, and the stream has one of its own. */
    fake.current = context;
    sg_pool_streams_note(NULL, false);
    assert_true(
        fake.events == 2 && fake.records == 1 && fake.recorded == CU_STREAM_LEGACY && fake.records_over_all == 1);
    assert_true(sg_pool_streams_waited(LIMIT_NS));
    assert_int_equal(fake.event_waits, 3);
    assert_true(!fake.relaxed && !fake.excluded && !fake.pinned);
}

/* Outside captures whoever waits records the event himself, as the thread does that others ask for memory. */
static void a_wait_without_a_capture_finds_the_mark(void **state)
{
    (void)state;
    fake.records_over = true;
    sg_pool_streams_note(NULL, true);
    fake.current = NULL;
    assert_true(sg_pool_streams_waited(LIMIT_NS));
    assert_true(fake.records_over_all == 1 && fake.event_waits == 1);
}

static void free_meanwhile(void)
{
    fake.meanwhile = NULL;
    sg_pool_streams_note(NULL, false);
}

static void begin_to_capture(void)
{
    fake.captures = true;
}

/* A free that comes during the record is not lost, and no record is made in a capture that has begun meanwhile. */
static void what_comes_meanwhile_is_kept_for_the_next(void **state)
{
    (void)state;
    fake.records_over = true;
    sg_pool_streams_note(NULL, false);
    fake.meanwhile = free_meanwhile;
    sg_default_streams_settle();
    sg_default_streams_settle();
    assert_int_equal(fake.records_over_all, 2);
    sg_context_table.entry[0].context = context;
    fake.meanwhile = begin_to_capture;
    sg_pool_streams_note(NULL, false);
    sg_default_streams_settle(); /* entry 2 is left */
    assert_int_equal(fake.records_over_all, 3);
    fake.captures = false;
    fake.meanwhile = NULL;
    sg_default_streams_settle();
    assert_int_equal(fake.records_over_all, 5);
}

static void a_context_takes_its_streams_along(void **state)
{
    (void)state;
    sg_pool_streams_note(stream(1), false);
    sg_pool_streams_note(NULL, false);
    sg_pool_streams_context_gone(context);
    assert_false(sg_pool_streams_waited(LIMIT_NS));
    assert_int_equal(fake.asked + fake.event_queries, 0);
    sg_pool_streams_note(NULL, false); /* one of the same handle */
    assert_true(sg_pool_streams_waited(LIMIT_NS));
    assert_true(fake.events == 2 && fake.event_waits == 1);
}

static void streams_that_are_gone_are_not_named(void **state)
{
    (void)state;
    fake.lost = stream(1);
    sg_pool_streams_note(stream(1), false);
    sg_pool_streams_note(stream(2), false);
    sg_pool_streams_gone(stream(2));
    assert_false(sg_pool_streams_waited(LIMIT_NS));
    assert_int_equal(fake.asked + fake.status_asked, 0);
}

/* The limit is for all of them together. */
static void endless_work_is_waited_for_in_bounds(void **state)
{
    (void)state;
    sg_pool_streams_note(stream(1), false);
    sg_pool_streams_note(stream(2), false);
    fake.busy = -1;
    uint64_t began = sg_clock_coarse_ns();
    assert_false(sg_pool_streams_waited(LIMIT_NS));
    uint64_t took = sg_clock_coarse_ns() - began;
    assert_true(took > UINT64_C(1000000000) && took < UINT64_C(8000000000));
}

/* The oldest makes room. */
static void more_streams_than_are_kept(void **state)
{
    (void)state;
    for (int i = 0; i <= STREAMS; i++)
        sg_pool_streams_note(stream(i), false);
    assert_true(sg_pool_streams_waited(LIMIT_NS));
    assert_int_equal(fake.waited, STREAMS);
}

static void without_a_relaxed_mode_nothing_is_asked(void **state)
{
    (void)state;
    sg_pool_streams_note(stream(1), false);
    fake.cannot_relax = true;
    assert_false(sg_pool_streams_waited(LIMIT_NS));
    fake.cannot_relax = false;
    fake.no_driver = true;
    sg_pool_streams_note(stream(2), false);
    assert_false(sg_pool_streams_waited(LIMIT_NS));
    assert_int_equal(fake.asked + fake.status_asked, 0);
}

static pthread_t ender;
static atomic_int ended;

static void *end_stream(void *unused)
{
    (void)unused;
    sg_pool_streams_gone(stream(1));
    atomic_store(&ended, 1);
    return NULL;
}

/* The end of the stream has begun, and does not go on while it is named. */
static bool ends_meanwhile(void)
{
    assert_int_equal(pthread_create(&ender, NULL, end_stream, NULL), 0);
    sg_rest(20000000);
    assert_int_equal(atomic_load(&ended), 0);
    return true;
}

static void an_end_waits_for_who_asks(void **state)
{
    (void)state;
    atomic_store(&ended, 0);
    sg_pool_streams_note(stream(1), false);
    fake.within = ends_meanwhile;
    fake.busy = -1;
    assert_false(sg_pool_streams_waited(LIMIT_NS));
    assert_int_equal(pthread_join(ender, NULL), 0);
    assert_int_equal(atomic_load(&ended), 1);
    assert_int_equal(fake.asked, 1);
}

#define TEST(name) cmocka_unit_test_setup(name, start)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_stream_is_waited_for),
        TEST(captured_streams_are_left_alone),
        TEST(a_stream_that_joins_meanwhile_is_let_go),
        TEST(default_streams_are_not_named),
        TEST(no_record_touches_a_capture),
        TEST(each_thread_has_an_event),
        TEST(a_capture_comes_after_what_was_freed),
        TEST(a_wait_without_a_capture_finds_the_mark),
        TEST(what_comes_meanwhile_is_kept_for_the_next),
        TEST(a_context_takes_its_streams_along),
        TEST(streams_that_are_gone_are_not_named),
        TEST(endless_work_is_waited_for_in_bounds),
        TEST(more_streams_than_are_kept),
        TEST(without_a_relaxed_mode_nothing_is_asked),
        TEST(an_end_waits_for_who_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
