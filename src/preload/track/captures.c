#include "track/captures.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"
#include "process/capture_mode.h"
#include "track/graph_blocks.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "base/rest.h"
#include "track/streams.h"
#include "torch/torch_mode.h"

enum { CAPTURES_MAX = 256, DEFERRED_MAX = 65536 };

/* Streams that are being captured. More at once than fit the list are only counted. */
static struct {
    struct capture {
        CUstream stream;
        bool per_thread; /* which stream 0 means */
        const struct sg_thread *thread; /* that began it */
        CUcontext context;
        unsigned joins; /* when it began */
    } list[CAPTURES_MAX];
    int listed;
    atomic_int active;
    atomic_uint joins; /* calls so far by which streams may have come to be captured */
} captures;

/* Many may hold it, or one may be joining; who wants to join goes first. Waiters sleep: a begin is rare. */
static struct {
    atomic_uint holders, joiners;
} exclusion;

/* Frees that are put off until no capture is active. */
static struct {
    struct deferred {
        CUdeviceptr address;
        CUcontext context; /* of the block */
        struct sg_request request;
    } list[DEFERRED_MAX]; /* untouched until something is parked */
    atomic_int under_way; /* taken out of the list, and not free yet */
} deferred;

/* Waits of ours for a context in the driver. It ruins a capture where such a call comes after its beginning, not
   where it came before. */
static struct {
    atomic_uint begun, over;
    atomic_uint entered; /* of those begun so many are in the driver by now */
} waits;

atomic_bool sg_captures_begun;
atomic_int sg_captures_deferred; /* entries of that list */
atomic_uint sg_captures_ended; /* ends of captures, and of frees that were kept for them */

bool sg_captures_active(void)
{
    return atomic_load_explicit(&captures.active, memory_order_acquire) > 0;
}

bool sg_captures_capturing(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const struct sg_driver *driver = sg_captures_active() ? sg_process_driver() : NULL;
    if (!driver || !driver->stream_is_capturing)
        return false;
    CUresult result = driver->stream_is_capturing(sg_stream_named(stream, per_thread), &status);
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool sg_captures_own(CUstream *ret)
{
    bool found = false;
    sg_process_lock(SG_LOCK_CAPTURES);
    for (int i = 0; i < captures.listed; i++) {
        const struct capture *capture = &captures.list[i];
        if (capture->thread == &sg_self) {
            *ret = sg_stream_named(capture->stream, capture->per_thread);
            found = true;
        }
    }
    sg_process_unlock(SG_LOCK_CAPTURES);
    return found;
}

bool sg_captures_forked(CUstream stream)
{
    bool alone = false;
    sg_process_lock(SG_LOCK_CAPTURES);
    for (int i = 0; i < captures.listed; i++) {
        const struct capture *capture = &captures.list[i];
        alone |= sg_stream_named(capture->stream, capture->per_thread) == stream &&
            capture->joins == atomic_load(&captures.joins);
    }
    sg_process_unlock(SG_LOCK_CAPTURES);
    return !alone;
}

enum { REST_NS = 20000 };

static void rest(void)
{
    sg_rest(REST_NS);
}

/* How many captures had ended when one was waited for in vain: none has since, so each allocation would be delayed. */
static struct {
    atomic_uint ends;
    atomic_bool any;
} outlasted;

static bool is_in_vain(void)
{
    return atomic_load(&outlasted.any) && atomic_load(&outlasted.ends) == sg_captures_ends();
}

bool sg_captures_await(uint64_t *left_ns)
{
    CUstream own;
    while ((sg_captures_active() || sg_captures_runs_deferred()) && *left_ns > 0 && !is_in_vain() &&
           !sg_captures_own(&own)) {
        uint64_t began = sg_clock_coarse_ns();
        rest();
        uint64_t took = sg_clock_coarse_ns() - began;
        took = took > REST_NS ? took : REST_NS;
        *left_ns -= took < *left_ns ? took : *left_ns;
    }
    if (*left_ns == 0 && sg_captures_active()) {
        atomic_store(&outlasted.ends, sg_captures_ends());
        atomic_store(&outlasted.any, true);
    }
    return !sg_captures_active();
}

bool sg_captures_runs_deferred(void)
{
    return atomic_load(&deferred.under_way) > 0;
}

void sg_captures_exclude(void)
{
    struct sg_thread *self = &sg_self;
    if (self->exclusions++)
        return; /* who waits to join waits for this thread already */
    for (;;) {
        while (atomic_load(&exclusion.joiners))
            rest();
        atomic_fetch_add(&exclusion.holders, 1);
        if (!atomic_load(&exclusion.joiners))
            return;
        atomic_fetch_sub(&exclusion.holders, 1);
    }
}

void sg_captures_allow(void)
{
    if (--sg_self.exclusions == 0)
        atomic_fetch_sub(&exclusion.holders, 1);
}

void sg_captures_joining(void)
{
    atomic_fetch_add(&captures.joins, 1);
    atomic_fetch_add(&exclusion.joiners, 1);
    while (atomic_load(&exclusion.holders))
        rest();
}

void sg_captures_joined(void)
{
    atomic_fetch_sub(&exclusion.joiners, 1);
}

void sg_captures_fork_child(void)
{
    atomic_store(&exclusion.holders, sg_self.exclusions > 0);
    atomic_store(&exclusion.joiners, 0);
    atomic_store(&waits.entered, atomic_load(&waits.begun));
}

CUresult sg_captures_wait(CUcontext context)
{
    const struct sg_driver *driver = sg_process_driver();
    sg_captures_exclude();
    bool active = sg_captures_active();
    if (!active)
        atomic_fetch_add(&waits.begun, 1);
    sg_captures_allow();
    if (active)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = context ? sg_driver_synchronize(driver, context) : driver->ctx_synchronize();
    atomic_fetch_add(&waits.over, 1);
    return result;
}

CUresult sg_captures_wait_aside(void)
{
    CUresult result = sg_captures_wait(NULL);
    return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? CUDA_ERROR_NOT_READY : result;
}

/* Lets those who wait come into the driver. Whether they have can't be seen, and they may stay there for long: each is
   given this much once. No other can begin meanwhile. */
static void let_enter(void)
{
    enum { RESTS = 250 }; /* 5 ms and more */
    unsigned begun = atomic_load(&waits.begun);
    for (int i = 0; i < RESTS && atomic_load(&waits.entered) != begun && atomic_load(&waits.over) != begun; i++)
        rest();
    atomic_store(&waits.entered, begun);
}

static CUresult defer_free(CUdeviceptr address, CUcontext context, const struct sg_request *request)
{
    CUresult result = CUDA_SUCCESS;
    sg_process_lock(SG_LOCK_CAPTURES);
    int count = atomic_load(&sg_captures_deferred);
    for (int i = 0; i < count; i++) {
        if (deferred.list[i].address == address)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    if (count == DEFERRED_MAX)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (result == CUDA_SUCCESS) {
        deferred.list[count] = (struct deferred){address, context, *request};
        deferred.list[count].request.driver_allowed = true;
        atomic_store(&sg_captures_deferred, count + 1);
    }
    sg_process_unlock(SG_LOCK_CAPTURES);
    return result;
}

CUresult sg_captures_defer_free(struct sg_core *core, CUdeviceptr address, const struct sg_request *request)
{
    struct sg_block_info block;
    CUresult result = sg_core_block(core, address, &block);
    if (result != CUDA_SUCCESS)
        return result;
    return block.base == address ? defer_free(address, block.context, request) : CUDA_ERROR_INVALID_VALUE;
}

uint64_t sg_captures_deferred_bytes(struct sg_core *core, int device)
{
    struct sg_block_info block;
    uint64_t bytes = 0;
    for (int i = 0; i < atomic_load(&sg_captures_deferred); i++) {
        sg_process_lock(SG_LOCK_CAPTURES); /* not held while the core takes its lock */
        CUdeviceptr address = deferred.list[i].address;
        sg_process_unlock(SG_LOCK_CAPTURES);
        if (sg_core_block(core, address, &block) == CUDA_SUCCESS && block.device == device)
            bytes += block.bytes;
    }
    return bytes;
}

void sg_captures_run_deferred(struct sg_core *core)
{
    while (atomic_load_explicit(&sg_captures_deferred, memory_order_relaxed) && !sg_captures_active()) {
        struct deferred next = {0};
        sg_process_lock(SG_LOCK_CAPTURES);
        int count = atomic_load(&sg_captures_deferred);
        if (count && !sg_captures_active()) {
            next = deferred.list[count - 1];
            atomic_fetch_add(&deferred.under_way, 1);
            atomic_store(&sg_captures_deferred, count - 1);
        }
        sg_process_unlock(SG_LOCK_CAPTURES);
        if (next.address) {
            sg_upward_calls.free(core, next.address, &next.request);
            atomic_fetch_add(&sg_captures_ended, 1);
            atomic_fetch_sub(&deferred.under_way, 1);
        }
    }
}

/* The last capture has ended. */
static void run_deferred(void)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    sg_captures_run_deferred(core);
    sg_leave();
}

/* A begin counts before the driver is asked: between its answer and ours other threads must see it. Returns the joins
   until then. */
static unsigned begin(void)
{
    sg_memory_fence(); /* once it has begun, no event of ours is recorded any more */
    atomic_store(&sg_captures_begun, true);
    atomic_fetch_add(&captures.active, 1);
    atomic_fetch_add(&sg_fast_path_epoch, 1);
    sg_captures_joining();
    let_enter();
    return atomic_load(&captures.joins) - !sg_following(); /* else joins are not seen: never equal again */
}

static CUresult begun(CUresult result, unsigned joins, CUstream stream, bool per_thread)
{
    const struct sg_driver *driver = sg_process_driver();
    CUcontext context = NULL;
    sg_captures_joined();
    if (driver && driver->ctx_get_current)
        (void)driver->ctx_get_current(&context);
    if (result == CUDA_SUCCESS) {
        sg_process_lock(SG_LOCK_CAPTURES);
        if (captures.listed < CAPTURES_MAX)
            captures.list[captures.listed++] = (struct capture){stream, per_thread, &sg_self, context, joins};
        sg_process_unlock(SG_LOCK_CAPTURES);
    } else if (atomic_fetch_sub(&captures.active, 1) == 1) {
        run_deferred();
    }
    return result;
}

static void ended(CUstream stream, bool per_thread)
{
    bool last = false, found = false;
    sg_process_lock(SG_LOCK_CAPTURES);
    for (int i = 0; i < captures.listed && !found; i++) {
        const struct capture *capture = &captures.list[i];
        found = capture->stream == stream && (stream || capture->per_thread == per_thread);
        if (found)
            captures.list[i] = captures.list[--captures.listed];
    }
    if (atomic_load(&captures.active) > captures.listed) /* that one, or one that is only counted */
        last = atomic_fetch_sub(&captures.active, 1) == 1;
    atomic_fetch_add(&sg_captures_ended, 1);
    sg_process_unlock(SG_LOCK_CAPTURES);
    if (last)
        sg_graphs_forget_spares();
    if (last)
        run_deferred();
}

/* These answers leave a capture going on. Source: the texts of CUresult in cuda.h. */
static CUresult end_answered(CUresult result, CUstream stream, bool per_thread)
{
    if (result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD && result != CUDA_ERROR_ILLEGAL_STATE &&
        result != CUDA_ERROR_INVALID_HANDLE)
        ended(stream, per_thread);
    return result;
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    unsigned joins = begin();
    return begun(sg_real()->cuStreamBeginCapture(stream), joins, stream, false);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    unsigned joins = begin();
    return begun(sg_real()->cuStreamBeginCapture_ptsz(stream), joins, stream, true);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    sg_torch_captures(mode);
    unsigned joins = begin();
    return begun(sg_real()->cuStreamBeginCapture_v2(stream, mode), joins, stream, false);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    sg_torch_captures(mode);
    unsigned joins = begin();
    return begun(sg_real()->cuStreamBeginCapture_v2_ptsz(stream, mode), joins, stream, true);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
    const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    unsigned joins = begin();
    return begun(sg_real()->cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode), joins, stream,
        false);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
    const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    unsigned joins = begin();
    return begun(sg_real()->cuStreamBeginCaptureToGraph_ptsz(stream, graph, nodes, edges, count, mode), joins, stream,
        true);
}

CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void *callback,
    void *user)
{
    unsigned joins = begin();
    return begun(sg_real()->cuStreamBeginRecaptureToGraph(stream, mode, graph, callback, user), joins, stream, false);
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void *callback,
    void *user)
{
    unsigned joins = begin();
    return begun(sg_real()->cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, callback, user), joins, stream,
        true);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret)
{
    return end_answered(sg_real()->cuStreamEndCapture(stream, ret), stream, false);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *ret)
{
    return end_answered(sg_real()->cuStreamEndCapture_ptsz(stream, ret), stream, true);
}

void sg_captures_context_gone(CUcontext context)
{
    int ends = 0, kept = 0;
    sg_process_lock(SG_LOCK_CAPTURES);
    for (int i = captures.listed - 1; i >= 0; i--) {
        if (captures.list[i].context != context)
            continue;
        captures.list[i] = captures.list[--captures.listed];
        ends++;
    }
    int count = atomic_load(&sg_captures_deferred);
    for (int i = 0; i < count; i++) {
        if (deferred.list[i].context != context)
            deferred.list[kept++] = deferred.list[i];
    }
    atomic_store(&sg_captures_deferred, kept);
    if (ends)
        atomic_fetch_sub(&captures.active, ends);
    sg_process_unlock(SG_LOCK_CAPTURES);
}

CUresult sg_captures_destroyed(CUresult result, CUstream stream)
{
    bool captured = false;
    sg_process_lock(SG_LOCK_CAPTURES);
    for (int i = 0; i < captures.listed; i++)
        captured |= captures.list[i].stream == stream;
    sg_process_unlock(SG_LOCK_CAPTURES);
    if (captured && result == CUDA_SUCCESS)
        ended(stream, false);
    return result;
}
