/* A driver that captures, made up for tests of questions to it. To be included by one file of a program. */
#ifndef CAPTURE_SAFE_FAKES_H
#define CAPTURE_SAFE_FAKES_H

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
    int busy; /* how often a query says that work is not complete */
    atomic_int begun, recorded;
    void (*in_record)(void), (*in_begin)(void), (*in_look)(void);
    CUcontext current, recorded_context;
    CUstream capturing; /* NULL: `captured` */
    int pushes, events;
    bool plain;         /* ctx_synchronize was called */
    uint64_t takes;     /* an event over a context, ns */
    uint64_t now, late; /* a clock that stands still but for so many ns at each rest */
    int rests;
    long longest;     /* of those, ns */
    CUresult refused; /* what the driver answers to what an event over a context takes, */
    int accepted;     /* after so many of those calls */
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

static inline CUresult accept(void)
{
    return fake.refused != CUDA_SUCCESS && fake.accepted-- == 0 ? fake.refused : CUDA_SUCCESS;
}

/* The driver. */
static inline void called(void)
{
    fake.calls++;
    fake.unheld += sg_self.exclusions == 0;
    fake.strict += thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

static inline CUresult event_query(CUevent asked)
{
    (void)asked;
    called();
    return fake.busy-- > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static inline CUresult event_record(CUevent asked, CUstream stream)
{
    (void)asked, (void)stream;
    called();
    if (fake.in_record)
        fake.in_record();
    fake.recorded++;
    return CUDA_SUCCESS;
}

static inline CUresult event_synchronize(CUevent asked)
{
    (void)asked;
    fail_msg("nothing may be waited for under the lock");
    return CUDA_SUCCESS;
}

static inline CUresult ctx_record_event(CUcontext context, CUevent asked)
{
    (void)asked;
    called();
    fake.recorded_context = context;
    fake.now += fake.takes;
    assert_ptr_equal(context, fake.current);
    return accept();
}

static inline CUresult ctx_synchronize(void)
{
    fake.plain = true;
    return CUDA_SUCCESS;
}

static inline CUresult event_create(CUevent *ret, unsigned flags)
{
    (void)flags;
    CUresult result = accept();
    *ret = event;
    fake.events += result == CUDA_SUCCESS;
    return result;
}

static inline CUresult event_destroy(CUevent asked)
{
    (void)asked;
    fake.events--;
    return CUDA_SUCCESS;
}

static inline CUresult get_current(CUcontext *ret)
{
    void (*look)(void) = fake.in_look;
    fake.in_look = NULL;
    if (look)
        look();
    *ret = fake.current;
    return accept();
}

static CUcontext below;

static inline CUresult push(CUcontext context)
{
    if (accept() != CUDA_SUCCESS)
        return fake.refused;
    fake.pushes++;
    below = fake.current;
    fake.current = context;
    return CUDA_SUCCESS;
}

static inline CUresult pop(CUcontext *ret)
{
    fake.pushes--;
    *ret = fake.current;
    fake.current = below;
    return CUDA_SUCCESS;
}

static inline CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    bool is = stream == (fake.capturing ? fake.capturing : captured) && sg_captures_active();
    *ret = is ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static inline CUresult exchange(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static inline CUresult begin(CUstream stream, CUstreamCaptureMode mode)
{
    (void)stream, (void)mode;
    if (fake.in_begin)
        fake.in_begin();
    fake.begun++;
    return CUDA_SUCCESS;
}

static inline CUresult begin_plainly(CUstream stream)
{
    return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static inline CUresult begin_to_graph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
    const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    (void)graph, (void)nodes, (void)edges, (void)count;
    return begin(stream, mode);
}

static inline CUresult end(CUstream stream, CUgraph *ret)
{
    (void)stream, (void)ret;
    return CUDA_SUCCESS;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {
        .cuStreamBeginCapture = begin_plainly,
        .cuStreamBeginCapture_ptsz = begin_plainly,
        .cuStreamBeginCapture_v2 = begin,
        .cuStreamBeginCapture_v2_ptsz = begin,
        .cuStreamBeginCaptureToGraph = begin_to_graph,
        .cuStreamBeginCaptureToGraph_ptsz = begin_to_graph,
        .cuStreamEndCapture = end,
        .cuStreamEndCapture_ptsz = end,
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

static inline int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    fake.current = (CUcontext)1;
    sg_captures_make_driver_safe(sg_process_driver(), &gated);
    assert_false(sg_captures_active());
    return 0;
}

static inline void expect_calls(int calls)
{
    assert_int_equal(fake.calls, calls);
    assert_int_equal(fake.unheld, 0);
    assert_int_equal(sg_self.exclusions, 0);
}

static inline void begin_now(void)
{
    cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

typedef CUresult begin_fn(void);

static inline CUresult by_plain(void)
{
    return cuStreamBeginCapture(captured);
}

static inline CUresult by_plain_own(void)
{
    return cuStreamBeginCapture_ptsz(captured);
}

static inline CUresult by_mode(void)
{
    return cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static inline CUresult by_mode_own(void)
{
    return cuStreamBeginCapture_v2_ptsz(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static inline CUresult to_graph(void)
{
    return cuStreamBeginCaptureToGraph(captured, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static inline CUresult to_graph_own(void)
{
    return cuStreamBeginCaptureToGraph_ptsz(captured, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static begin_fn *const ways[] = {by_plain, by_plain_own, by_mode, by_mode_own, to_graph, to_graph_own};
enum { WAYS = sizeof ways / sizeof *ways };

#endif
