/* Captures by stream, frees that are put off, and the exclusion between captures and calls of ours.

   Three counters decide. `active` counts captures that have begun or are beginning. `holders` counts threads inside an
   exclusion, `joiners` threads that begin or join a capture. A joiner announces itself and waits for all holders; a
   holder that finds a joiner steps back. So joiners go first, and nobody waits for long: a begin is rare.

   For example, thread A is about to wait for a context. It counts as a holder, sees that no capture is active, counts
   its wait as begun, and lets go. Thread B begins a capture. It counts as active, becomes a joiner and finds no holder.
   It rests until A has slept or run on for 50 us, so A is in the driver. The driver gets the wait first, and B's capture
   lives. */
#include "track/captures.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/other_threads.h"
#include "process/capture_mode.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "track/stream_handle.h"
#include "base/rest.h"

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
    atomic_int aside;    /* of helper threads, begun and not over */
    atomic_bool looked;  /* those from before the first capture are in the driver too */
} waits;

atomic_bool sg_captures_begun;
atomic_int sg_captures_deferred; /* entries of that list */
atomic_uint sg_captures_ended; /* ends of captures, and of frees that were kept for them */

bool sg_captures_active(void)
{
    return atomic_load_explicit(&captures.active, memory_order_acquire) > 0;
}

/* The driver's word, since a stream may have joined a capture by an event that was not followed. */
bool sg_captures_capturing(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const struct sg_driver *driver = sg_captures_active() ? sg_process_driver() : NULL;
    if (!driver || !driver->stream_is_capturing)
        return false;
    CUresult result = driver->stream_is_capturing(sg_stream_named(stream, per_thread), &status);
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The latest of this thread's, because captures of one thread may be nested in graphs of another. */
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

/* A capture is alone if no stream could have joined any capture since it began: joins are counted for all together. */
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

static void captures_rest(void)
{
    sg_rest(REST_NS);
}

/* How many captures had ended when one was waited for in vain: none has since, so each allocation would be delayed. */
static struct {
    atomic_uint ends;
    atomic_bool any;
} outlasted;

static bool captures_is_in_vain(void)
{
    return atomic_load(&outlasted.any) && atomic_load(&outlasted.ends) == sg_captures_ends();
}

/* In rests of 20 us. Time over is remembered until some capture ends: else each allocation beside an endless capture
   would wait its limit. */
bool sg_captures_await(uint64_t *left_ns)
{
    CUstream own;
    while ((sg_captures_active() || sg_captures_runs_deferred()) && *left_ns > 0 && !captures_is_in_vain() &&
           !sg_captures_own(&own)) {
        uint64_t began = sg_clock_coarse_ns();
        captures_rest();
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

/* Counts itself, looks for joiners, and steps back if there are any. A thread that already excludes goes through, or it
   would wait for a joiner that waits for it. */
void sg_captures_exclude(void)
{
    struct sg_thread *self = &sg_self;
    if (self->exclusions++)
        return; /* who waits to join waits for this thread already */
    for (;;) {
        while (atomic_load(&exclusion.joiners))
            captures_rest();
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
        captures_rest();
}

void sg_captures_joined(void)
{
    atomic_fetch_sub(&exclusion.joiners, 1);
}

unsigned sg_captures_joins(void)
{
    return atomic_load(&captures.joins);
}

void sg_captures_fork_child(void)
{
    atomic_store(&exclusion.holders, sg_self.exclusions > 0);
    atomic_store(&exclusion.joiners, 0);
    atomic_store(&waits.entered, atomic_load(&waits.begun));
    atomic_store(&waits.aside, 0);
}

/* Counted as begun while nothing can begin, so that a capture's begin can let it enter the driver first. */
CUresult sg_captures_wait(CUcontext context)
{
    const struct sg_driver *driver = sg_process_driver();
    sg_captures_exclude();
    bool active = sg_captures_active(), aside = sg_self.aside;
    if (!active) {
        atomic_fetch_add(&waits.begun, 1);
        atomic_fetch_add(&waits.aside, aside);
    }
    sg_captures_allow();
    if (active)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = context ? sg_driver_synchronize(driver, context) : driver->ctx_synchronize();
    atomic_fetch_sub(&waits.aside, aside);
    atomic_fetch_add(&waits.over, 1);
    return result;
}

bool sg_captures_waits_aside(void)
{
    return atomic_load(&waits.aside) > 0;
}

CUresult sg_captures_wait_aside(void)
{
    CUresult result = sg_captures_wait(NULL);
    return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? CUDA_ERROR_NOT_READY : result;
}

/* Lets those who are about to wait come into the driver. Nobody can see whether they have, and they may stay there for
   long, so each is only let run on. Those that saw no capture, before the first one began, aren't counted at all:
   capture_safe_driver.c asks the driver at once then. No other can begin meanwhile. */
static void captures_let_waits_enter(void)
{
    enum { LIMIT_NS = 1000000000, RESTS = 250 /* 5 ms and more, where nothing is known of the threads */ };
    unsigned begun = atomic_load(&waits.begun);
    if (atomic_load(&waits.looked) && (atomic_load(&waits.entered) == begun || atomic_load(&waits.over) == begun))
        return;
    if (!sg_other_threads_pass(LIMIT_NS))
        for (int i = 0; i < RESTS; i++)
            captures_rest();
    atomic_store(&waits.entered, begun);
    atomic_store(&waits.looked, true);
}

/* Puts a free into the list. A second free of the block is the program's error; a full list is answered as a driver
   that allows no free. */
static CUresult captures_put_off(CUdeviceptr address, CUcontext context, const struct sg_request *request)
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

/* Only the start of a live block can be freed, now or later. */
CUresult sg_captures_defer_free(struct sg_core *core, CUdeviceptr address, const struct sg_request *request)
{
    struct sg_block_info block;
    CUresult result = sg_core_block(core, address, &block);
    if (result != CUDA_SUCCESS)
        return result;
    return block.base == address ? captures_put_off(address, block.context, request) : CUDA_ERROR_INVALID_VALUE;
}

/* One entry after another, since the core's lock comes before this one. Frees that are made meanwhile may be missed. */
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

/* One at a time, without the lock: a free may wait, and it takes the core's locks. The last one put off goes first. */
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

unsigned sg_captures_begin(void)
{
    atomic_store(&sg_captures_begun, true);
    atomic_fetch_add(&captures.active, 1);
    atomic_fetch_add(&sg_fast_path_epoch, 1);
    sg_captures_joining();
    captures_let_waits_enter();
    return atomic_load(&captures.joins);
}

void sg_captures_list(CUstream stream, bool per_thread, CUcontext context, unsigned joins)
{
    sg_process_lock(SG_LOCK_CAPTURES);
    if (captures.listed < CAPTURES_MAX)
        captures.list[captures.listed++] = (struct capture){stream, per_thread, &sg_self, context, joins};
    sg_process_unlock(SG_LOCK_CAPTURES);
}

bool sg_captures_not_begun(void)
{
    return atomic_fetch_sub(&captures.active, 1) == 1;
}

/* A capture that had no entry is only counted down. */
bool sg_captures_end(CUstream stream, bool per_thread)
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
    return last;
}

/* The handle alone is compared: a stream that is destroyed is named by it. */
bool sg_captures_is_listed(CUstream stream)
{
    bool captured = false;
    sg_process_lock(SG_LOCK_CAPTURES);
    for (int i = 0; i < captures.listed; i++)
        captured |= captures.list[i].stream == stream;
    sg_process_unlock(SG_LOCK_CAPTURES);
    return captured;
}

/* Its captures count no more, and frees of its blocks are dropped: the blocks went with it. */
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
