/* Live captures are counted, frees wait for their end, and calls that would ruin one wait too. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "balance.h"
#include "process/capture_mode.h"
#include "serve/free.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/streams.h"
#include "serve/deferred_frees.h"
#include "track/graph_blocks.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "other_threads.h"
#include "rest.h"
#include "track/streams.h"
#include "track/torch_mode.h"

atomic_bool sg_following_order = true;

static struct {
    CUresult begin, end, destroy; /* what the driver answers */
    CUresult current, exchanged; /* and to questions of ours */
    CUcontext context;           /* the current one, and the blocks' */
    bool old;                    /* it lacks all that is not required */
    bool no_core;
    CUdeviceptr unknown; /* a block that the core has no more */
    CUdeviceptr freed[16];
    int freed_count;
    CUstreamCaptureMode mode;
    CUstreamCaptureStatus status; /* of any stream */
    int forgotten;               /* how often what captures may have again was forgotten */
    atomic_bool called, inside, go; /* a wait for a context */
    atomic_bool looked;             /* the other threads were let run on */
    bool unknown_threads;           /* nothing is known of them */
    atomic_int rests;
} fake;

/* In place of the library's: how long a thread rests is not to decide who is first. */
void sg_rest(long ns)
{
    (void)ns;
    atomic_fetch_add(&fake.rests, 1);
    sched_yield();
}

/* A thread that is on its way into the driver comes there meanwhile, and not before. */
bool sg_other_threads_pass(uint64_t limit_ns)
{
    (void)limit_ns;
    atomic_store(&fake.looked, true);
    while (atomic_load(&fake.inside) != atomic_load(&fake.called))
        sched_yield();
    return !fake.unknown_threads;
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode)
{
    (void)stream, (void)mode;
    assert_true(atomic_load(&fake.inside) == atomic_load(&fake.called));
    return fake.begin;
}

/* Comes into the driver some time after it was called, and stays there. */
static CUresult synchronize(void)
{
    atomic_store(&fake.called, true);
    while (!atomic_load(&fake.looked) && !atomic_load(&fake.go)) /* so it is on its way */
        sched_yield();
    atomic_store(&fake.inside, true);
    while (!atomic_load(&fake.go))
        sched_yield();
    return CUDA_SUCCESS;
}

static CUresult synchronize_of(CUcontext context)
{
    return context == fake.context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult end(CUstream stream, CUgraph *ret)
{
    (void)stream, (void)ret;
    return fake.end;
}

static CUresult exchange(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = fake.mode;
    fake.mode = *mode;
    *mode = before;
    return fake.exchanged;
}

static CUresult begin_plain(CUstream stream)
{
    return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult begin_to_graph(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
    size_t count, CUstreamCaptureMode mode)
{
    (void)graph, (void)nodes, (void)edges, (void)count;
    return begin(stream, mode);
}

static CUresult begin_again(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void *callback, void *user)
{
    assert_true(!graph || (callback == &fake.begin && user == &fake.end)); /* as they were given */
    return begin(stream, mode);
}

static CUresult get_current(CUcontext *ret)
{
    *ret = fake.context;
    return fake.current;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    (void)stream;
    *ret = fake.status;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUstream stream)
{
    (void)stream;
    return fake.destroy;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {
        .cuStreamBeginCapture = begin_plain,
        .cuStreamBeginCapture_ptsz = begin_plain,
        .cuStreamBeginCaptureToGraph = begin_to_graph,
        .cuStreamBeginCaptureToGraph_ptsz = begin_to_graph,
        .cuStreamBeginRecaptureToGraph = begin_again,
        .cuStreamBeginRecaptureToGraph_ptsz = begin_again,
        .cuStreamBeginCapture_v2 = begin,
        .cuStreamBeginCapture_v2_ptsz = begin,
        .cuStreamEndCapture = end,
        .cuStreamEndCapture_ptsz = end,
        .cuStreamDestroy_v2 = destroy,
    };
    return &real;
}

CUresult cuCtxFromGreenCtx(CUcontext *ret, CUgreenCtx green)
{
    (void)ret, (void)green;
    return CUDA_ERROR_NOT_SUPPORTED;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver old = {.ctx_synchronize = synchronize, .ctx_synchronize_of = synchronize_of},
        driver = {.exchange_capture_mode = exchange, .ctx_synchronize = synchronize, .ctx_get_current = get_current,
            .stream_is_capturing = is_capturing, .ctx_synchronize_of = synchronize_of};
    return fake.old ? &old : &driver;
}

struct sg_core *sg_enter(void)
{
    return balance_begin(fake.no_core ? NULL : (struct sg_core *)&fake);
}

/* Blocks of 4096 bytes, the first at 4096; a device has 64 KiB of addresses. */
CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    (void)core;
    *ret = (struct sg_block_info){.base = address & ~(CUdeviceptr)4095,
        .bytes = 4096,
        .context = fake.context,
        .device = (int)(address >> 16)};
    return address >= 4096 && address != fake.unknown ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sg_graphs_forget_spares(void)
{
    fake.forgotten++;
}

CUresult sg_memory_free(struct sg_core *core, CUdeviceptr address, const struct sg_request *request)
{
    (void)core;
    assert_false(sg_captures_active());
    assert_true(request->driver_allowed); /* else the driver might be asked again, in another thread and beside its
                                             captures */
    if (fake.freed_count < 16)
        fake.freed[fake.freed_count] = address;
    fake.freed_count++;
    return CUDA_SUCCESS;
}

const struct sg_upward_calls sg_upward_calls = {.free = sg_memory_free};

void sg_core_poll(struct sg_core *core, int device)
{
    (void)core, (void)device;
    assert_false(sg_captures_active());
}

static int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    assert_false(sg_captures_active());
    return 0;
}

static CUresult park(CUdeviceptr address)
{
    const struct sg_request request = {0};
    return sg_captures_defer_free((struct sg_core *)&fake, address, &request);
}

static CUstream stream_of(uintptr_t number)
{
    return (CUstream)number;
}

static void parks_until_the_last_capture_ends(void **state)
{
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(cuStreamBeginCapture_v2(stream_of(16), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(park(4096), CUDA_SUCCESS);
    assert_int_equal(park(4096), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(park(8192 + 512), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(park(8192), CUDA_SUCCESS);
    assert_int_equal(cuStreamEndCapture(stream_of(8), NULL), CUDA_SUCCESS);
    assert_true(sg_captures_active());
    assert_int_equal(fake.freed_count, 0);
    assert_int_equal(cuStreamEndCapture(stream_of(16), NULL), CUDA_SUCCESS);
    assert_false(sg_captures_active());
    assert_int_equal(fake.freed_count, 2);
    assert_int_equal(fake.freed[0] + fake.freed[1], 4096 + 8192);
}

/* One that has become invalid goes on until it is ended. */
static void invalid_captures_are_captures(void **state)
{
    (void)state;
    fake.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    assert_false(sg_captures_capturing(stream_of(8), false)); /* the driver is not asked where there is none */
    assert_int_equal(cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_true(sg_captures_capturing(stream_of(8), false));
    fake.status = CU_STREAM_CAPTURE_STATUS_NONE;
    assert_false(sg_captures_capturing(stream_of(8), false));
    assert_int_equal(fake.forgotten, 0);
    assert_int_equal(cuStreamEndCapture(stream_of(8), NULL), CUDA_SUCCESS);
    assert_int_equal(fake.forgotten, 1);
}

static void counts_only_what_the_driver_began(void **state)
{
    (void)state;
    fake.begin = CUDA_ERROR_ILLEGAL_STATE;
    assert_int_equal(cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    assert_false(sg_captures_active());
    fake.end = CUDA_ERROR_ILLEGAL_STATE;
    assert_int_equal(cuStreamEndCapture(stream_of(8), NULL), CUDA_ERROR_ILLEGAL_STATE);
    assert_false(sg_captures_active());
}

static void a_failed_capture_ends_too(void **state)
{
    (void)state;
    cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    fake.end = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    cuStreamEndCapture(stream_of(8), NULL);
    assert_true(sg_captures_active());
    fake.end = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    cuStreamEndCapture(stream_of(8), NULL);
    assert_false(sg_captures_active());
}

static void a_destroyed_stream_captures_no_more(void **state)
{
    (void)state;
    cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    park(4096);
    assert_int_equal(cuStreamDestroy_v2(stream_of(16)), CUDA_SUCCESS);
    assert_true(sg_captures_active());
    assert_int_equal(cuStreamDestroy_v2(stream_of(8)), CUDA_SUCCESS);
    assert_false(sg_captures_active());
    assert_int_equal(fake.freed_count, 1);
}

static void what_is_parked_counts_on_its_device(void **state)
{
    struct sg_core *core = (struct sg_core *)&fake;
    (void)state;
    assert_int_equal(sg_captures_deferred_bytes(core, 0), 0);
    cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    park(4096);
    park(8192);
    park(65536);
    assert_int_equal(sg_captures_deferred_bytes(core, 0), 8192);
    assert_int_equal(sg_captures_deferred_bytes(core, 1), 4096);
    assert_int_equal(sg_captures_deferred_bytes(core, 2), 0);
    fake.unknown = 8192;
    assert_int_equal(sg_captures_deferred_bytes(core, 0), 4096);
    cuStreamEndCapture(stream_of(8), NULL);
    assert_int_equal(sg_captures_deferred_bytes(core, 0), 0);
    assert_int_equal(fake.freed_count, 3);
}

static void what_was_parked_goes_with_its_context(void **state)
{
    (void)state;
    cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    park(4096);
    sg_captures_context_gone(NULL); /* here that is the stream's, and the block's */
    assert_false(sg_captures_active());
    cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuStreamEndCapture(stream_of(8), NULL);
    assert_int_equal(fake.freed_count, 0);
}

/* Stream 0 is two streams, any other is the same by either interface. */
static void knows_the_default_streams_apart(void **state)
{
    (void)state;
    cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuStreamEndCapture_ptsz(stream_of(8), NULL);
    cuStreamEndCapture(NULL, NULL);
    assert_true(sg_captures_active());
    cuStreamEndCapture_ptsz(NULL, NULL);
    assert_false(sg_captures_active());
}

static void relaxes_and_restores(void **state)
{
    (void)state;
    CUstreamCaptureMode mode;
    fake.mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    assert_true(sg_capture_mode_relax(&mode));
    assert_int_equal(fake.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    sg_capture_mode_restore(&mode);
    assert_int_equal(fake.mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void *wait_aside(void *ret)
{
    sg_self.aside = true;
    *(CUresult *)ret = sg_captures_wait_aside();
    return NULL;
}

/* Else the wait would come to the driver when the capture is there, and ruin it. Where the kernel says nothing of the
   thread, a fixed time has to do. */
static void begins_after_a_wait_aside_is_in_the_driver(void **state)
{
    (void)state;
    pthread_t thread;
    CUresult waited = CUDA_ERROR_UNKNOWN;
    assert_false(sg_captures_waits_aside());
    assert_int_equal(pthread_create(&thread, NULL, wait_aside, &waited), 0);
    while (!atomic_load(&fake.called))
        sched_yield();
    assert_true(sg_captures_waits_aside());
    fake.unknown_threads = true;
    assert_int_equal(cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_in_range(atomic_load(&fake.rests), 250, 300);
    assert_int_equal(sg_captures_wait_aside(), CUDA_ERROR_NOT_READY);
    assert_int_equal(sg_captures_wait(NULL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    atomic_store(&fake.go, true);
    pthread_join(thread, NULL);
    assert_int_equal(waited, CUDA_SUCCESS);
    assert_false(sg_captures_waits_aside());
    assert_int_equal(cuStreamEndCapture(stream_of(8), NULL), CUDA_SUCCESS);
    assert_int_equal(sg_captures_wait_aside(), CUDA_SUCCESS);
}

/* Which threads saw no capture before the first is not known, so they are let run on whatever was counted. It isn't
   done again, because they count from then on. Runs first, since it is about the first capture of the process. */
static void before_the_first_capture_all_threads_run_on(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        atomic_store(&fake.looked, false);
        assert_int_equal(cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
        assert_int_equal(atomic_load(&fake.looked), i == 0);
        assert_int_equal(atomic_load(&fake.rests), 0);
        assert_int_equal(cuStreamEndCapture(stream_of(8), NULL), CUDA_SUCCESS);
    }
}

static void *hold_for_good(void *unused)
{
    sg_captures_exclude();
    return unused;
}

/* A thread that kept captures from beginning in the parent is none of the child's: the program hears the driver's
   error. */
static void a_forked_child_waits_for_nobody(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, hold_for_good, NULL), 0);
    pthread_join(thread, NULL);
    fake.begin = CUDA_ERROR_NOT_INITIALIZED;
    sg_captures_fork_child();
    assert_int_equal(cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_NOT_INITIALIZED);
    assert_false(sg_captures_active());
}

/* By whichever call it begins, and is ended. */
static void every_beginning_counts(void **state)
{
    (void)state;
    for (int call = 0; call < 8; call++) {
        for (int fails = 0; fails < 2; fails++) {
            CUstream stream = stream_of(8);
            CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
            fake.begin = fails ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
            CUresult result = call == 0 ? cuStreamBeginCapture(stream)
                : call == 1 ? cuStreamBeginCapture_ptsz(stream)
                : call == 2 ? cuStreamBeginCapture_v2(stream, mode)
                : call == 3 ? cuStreamBeginCapture_v2_ptsz(stream, mode)
                : call == 4 ? cuStreamBeginCaptureToGraph(stream, NULL, NULL, NULL, 0, mode)
                : call == 5 ? cuStreamBeginCaptureToGraph_ptsz(stream, NULL, NULL, NULL, 0, mode)
                : call == 6 ? cuStreamBeginRecaptureToGraph(stream, mode, NULL, NULL, NULL)
                            : cuStreamBeginRecaptureToGraph_ptsz(stream, mode, NULL, NULL, NULL);
            assert_int_equal(result, fake.begin);
            assert_int_equal(sg_captures_active(), !fails);
            CUresult ended = call % 2 ? cuStreamEndCapture_ptsz(stream, NULL) : cuStreamEndCapture(stream, NULL);
            assert_int_equal(ended, CUDA_SUCCESS);
            assert_false(sg_captures_active());
        }
    }
}

/* Those that found no place end too, in whichever order; one whose stream nobody knows can't. */
static void more_captures_than_there_is_room_for_end(void **state)
{
    enum { MANY = 300 };
    (void)state;
    for (uintptr_t i = 0; i < MANY; i++)
        assert_int_equal(cuStreamBeginCapture_v2(stream_of(8 + 8 * i), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    for (uintptr_t i = MANY; i-- > 0;) {
        assert_true(sg_captures_active());
        assert_int_equal(cuStreamEndCapture(stream_of(8 + 8 * i), NULL), CUDA_SUCCESS);
    }
    assert_false(sg_captures_active());
}

/* What is no block, or beyond what can be kept, is refused; what was kept of a context that is gone went with it. */
static void frees_that_cannot_be_kept_are_refused(void **state)
{
    enum { MANY = 65536 };
    (void)state;
    assert_int_equal(cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(park(512), CUDA_ERROR_INVALID_VALUE); /* no block */
    fake.context = (CUcontext)64;
    assert_int_equal(park(4096), CUDA_SUCCESS);
    fake.context = (CUcontext)128;
    assert_int_equal(park(8192), CUDA_SUCCESS);
    sg_captures_context_gone((CUcontext)64); /* that of the first */
    assert_true(sg_captures_active());
    assert_int_equal(cuStreamEndCapture(stream_of(8), NULL), CUDA_SUCCESS);
    assert_int_equal(fake.freed_count, 1);
    assert_int_equal(fake.freed[0], 8192);
    fake.freed_count = 0;
    assert_int_equal(cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    atomic_store(&sg_captures_deferred, MANY); /* as many as there is room for */
    assert_int_equal(park(4096), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    atomic_store(&sg_captures_deferred, 0);
    assert_int_equal(cuStreamEndCapture(stream_of(8), NULL), CUDA_SUCCESS);
    assert_int_equal(fake.freed_count, 0);
}

static void a_stream_that_lives_on_captures_on(void **state)
{
    (void)state;
    cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    fake.destroy = CUDA_ERROR_INVALID_HANDLE;
    assert_int_equal(cuStreamDestroy_v2(stream_of(8)), CUDA_ERROR_INVALID_HANDLE);
    fake.destroy = CUDA_SUCCESS;
    assert_true(sg_captures_active());
    for (int i = 0; i < 2; i++) { /* these leave it going on */
        fake.end = i ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_HANDLE;
        cuStreamEndCapture(stream_of(8), NULL);
        assert_true(sg_captures_active());
    }
    fake.end = CUDA_SUCCESS;
    cuStreamEndCapture(stream_of(8), NULL);
    assert_false(sg_captures_active());
}

/* What was put off stays so where there is nobody to free it: from inside, or once it is over. */
static void frees_wait_for_a_thread_that_can_make_them(void **state)
{
    (void)state;
    cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    park(4096);
    fake.no_core = true;
    cuStreamEndCapture(stream_of(8), NULL);
    assert_int_equal(fake.freed_count, 0);
    fake.begin = CUDA_ERROR_ILLEGAL_STATE;
    fake.no_core = false;
    cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(fake.freed_count, 1);
}

/* Of a driver without the calls for that, nothing is asked. */
static void old_drivers_capture_too(void **state)
{
    CUstreamCaptureMode mode;
    (void)state;
    fake.old = true;
    assert_int_equal(cuStreamBeginCapture(stream_of(8)), CUDA_SUCCESS);
    assert_false(sg_captures_capturing(stream_of(8), false));
    assert_false(sg_capture_mode_relax(&mode));
    assert_int_equal(cuStreamEndCapture(stream_of(8), NULL), CUDA_SUCCESS);
    fake.old = false;
    fake.exchanged = CUDA_ERROR_UNKNOWN;
    assert_false(sg_capture_mode_relax(&mode));
    assert_int_equal(sg_captures_wait((CUcontext)64), CUDA_ERROR_INVALID_CONTEXT);
    fake.context = (CUcontext)64;
    assert_int_equal(sg_captures_wait((CUcontext)64), CUDA_SUCCESS);
}

/* Nobody waits for his own capture, nor longer than he was to. */
static void waiting_for_captures_ends(void **state)
{
    uint64_t left = 1000000;
    (void)state;
    assert_true(sg_captures_await(&left));
    assert_int_equal(left, 1000000);
    cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_false(sg_captures_await(&left));
    assert_int_equal(left, 1000000);
    CUstream stream;
    assert_true(sg_captures_own(&stream) && stream == stream_of(8));
    cuStreamEndCapture(stream_of(8), NULL);
    assert_false(sg_captures_own(&stream));
}

static void *begin_one(void *unused)
{
    (void)cuStreamBeginCapture_v2(stream_of(8), CU_STREAM_CAPTURE_MODE_RELAXED);
    return unused;
}

/* That of another thread is waited for; and what was put off stays so meanwhile. */
static void others_captures_are_waited_for(void **state)
{
    uint64_t left = 50000;
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, begin_one, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(park(4096), CUDA_SUCCESS);
    assert_false(sg_captures_await(&left));
    assert_int_equal(left, 0);
    left = 50000; /* the next allocation: in vain, so it is not delayed too */
    assert_false(sg_captures_await(&left));
    assert_int_equal(left, 50000);
    sg_captures_run_deferred((struct sg_core *)&fake);
    assert_int_equal(fake.freed_count, 0);
    cuStreamEndCapture(stream_of(8), NULL);
    assert_int_equal(fake.freed_count, 1);
    assert_int_equal(pthread_create(&thread, NULL, begin_one, NULL), 0);
    pthread_join(thread, NULL);
    assert_false(sg_captures_await(&left)); /* another one, which may be short */
    assert_int_equal(left, 0);
    cuStreamEndCapture(stream_of(8), NULL);
}

static void a_capture_is_begun_again_as_it_was_asked(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        CUgraph graph = (CUgraph)64;
        assert_int_equal((i ? cuStreamBeginRecaptureToGraph_ptsz : cuStreamBeginRecaptureToGraph)(stream_of(8),
            CU_STREAM_CAPTURE_MODE_GLOBAL, graph, &fake.begin, &fake.end), CUDA_SUCCESS);
        cuStreamEndCapture(stream_of(8), NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(before_the_first_capture_all_threads_run_on, start_afresh),
        cmocka_unit_test_setup(parks_until_the_last_capture_ends, start_afresh),
        cmocka_unit_test_setup(invalid_captures_are_captures, start_afresh),
        cmocka_unit_test_setup(counts_only_what_the_driver_began, start_afresh),
        cmocka_unit_test_setup(a_failed_capture_ends_too, start_afresh),
        cmocka_unit_test_setup(a_destroyed_stream_captures_no_more, start_afresh),
        cmocka_unit_test_setup(what_is_parked_counts_on_its_device, start_afresh),
        cmocka_unit_test_setup(what_was_parked_goes_with_its_context, start_afresh),
        cmocka_unit_test_setup(knows_the_default_streams_apart, start_afresh),
        cmocka_unit_test_setup(relaxes_and_restores, start_afresh),
        cmocka_unit_test_setup(every_beginning_counts, start_afresh),
        cmocka_unit_test_setup(more_captures_than_there_is_room_for_end, start_afresh),
        cmocka_unit_test_setup(frees_that_cannot_be_kept_are_refused, start_afresh),
        cmocka_unit_test_setup(a_stream_that_lives_on_captures_on, start_afresh),
        cmocka_unit_test_setup(frees_wait_for_a_thread_that_can_make_them, start_afresh),
        cmocka_unit_test_setup(old_drivers_capture_too, start_afresh),
        cmocka_unit_test_setup(waiting_for_captures_ends, start_afresh),
        cmocka_unit_test_setup(others_captures_are_waited_for, start_afresh),
        cmocka_unit_test_setup(a_capture_is_begun_again_as_it_was_asked, start_afresh),
        cmocka_unit_test_setup(begins_after_a_wait_aside_is_in_the_driver, start_afresh),
        cmocka_unit_test_setup(a_forked_child_waits_for_nobody, start_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
