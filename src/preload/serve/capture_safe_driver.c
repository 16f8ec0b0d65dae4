/* The driver as the core calls it. Calls that could ruin a capture are made within sg_captures_exclude(), while no
   capture can begin. Where an active capture would be ruined they are not made. Source of what does: cuda.h, the texts of
   cuThreadExchangeStreamCaptureMode, cuCtxRecordEvent and cuStreamIsCapturing.

   For example, a program that has captured before waits for a context. A plain cuCtxSynchronize could meet a capture
   that begins just then. So an event over the context is recorded while nothing can begin. It is asked about until it
   has completed. That is 64 times at once, then after rests of 2.5 us and more, up to 0.2 ms. */
#include "serve/capture_safe_driver.h"

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "process/capture_mode.h"
#include "track/captures.h"
#include "base/clock.h"
#include "process/process.h"
#include "base/rest.h"
#include "track/context_pins.h"

static const struct sg_driver *real; /* set before anything here is called */

/* Events of ours are never recorded in a capture: a thread in relaxed mode may always ask for one. */
static CUresult query_outside_capture(CUevent event)
{
    CUstreamCaptureMode mode;
    CUresult result = CUDA_ERROR_NOT_READY;
    sg_captures_exclude();
    bool capturing = sg_captures_active();
    bool relaxed = capturing && sg_capture_mode_relax(&mode);
    if (!capturing || relaxed)
        result = real->event_query(event);
    if (relaxed)
        sg_capture_mode_restore(&mode);
    sg_captures_allow();
    return result;
}

/* True if a stream may be given work of ours. Not while it is captured. Nor may the legacy stream be, beside a captured one
   that it orders. */
static bool stream_is_open(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!sg_captures_active())
        return true;
    return stream && stream != CU_STREAM_LEGACY && real->stream_is_capturing &&
        real->stream_is_capturing(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult record_outside_capture(CUevent event, CUstream stream)
{
    sg_captures_exclude();
    CUresult result = stream_is_open(stream) ? real->event_record(event, stream) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sg_captures_allow();
    return result;
}

/* The cost of an event over a context on a GPU is not documented: a driver may put one into each of hundreds of
   channels. So the first few are timed, of which the quickest counts: others may have been held up. */
enum { TIMED = 8, SLOW_NS = 200000 /* what a free that waits takes otherwise, some ten times over */ };

static struct {
    atomic_uint times;
    _Atomic uint64_t least_ns; /* of those; once there are any */
} recorded;

static bool records_slowly(void)
{
    return atomic_load_explicit(&recorded.times, memory_order_acquire) >= TIMED &&
        atomic_load_explicit(&recorded.least_ns, memory_order_relaxed) > SLOW_NS;
}

static void note_duration(uint64_t ns)
{
    uint64_t least = atomic_load(&recorded.least_ns);
    while ((!least || ns < least) && !atomic_compare_exchange_weak(&recorded.least_ns, &least, ns ? ns : 1)) {
    }
    atomic_fetch_add_explicit(&recorded.times, 1, memory_order_release);
}

/* Records an event over a whole context, where no capture can begin meanwhile. */
static CUresult record_over(CUcontext context, CUevent event)
{
    bool timed = atomic_load_explicit(&recorded.times, memory_order_relaxed) < TIMED;
    uint64_t began = timed ? sg_clock_ns() : 0;
    CUresult result = real->ctx_record_event(context, event);
    if (timed && result == CUDA_SUCCESS)
        note_duration(sg_clock_ns() - began);
    return result;
}

static CUresult record_context_outside_capture(CUcontext context, CUevent event)
{
    sg_captures_exclude();
    CUresult result = sg_captures_active() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : record_over(context, event);
    sg_captures_allow();
    return result;
}

enum { FIRST_SLICE_NS = 20000, LAST_SLICE_NS = 200000, EAGER = 64 /* times */ };

/* An event of ours over a context, which is current. */
static CUresult fence_outside_capture(CUcontext context, CUevent *ret)
{
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sg_captures_exclude();
    if (!sg_captures_active()) {
        result = real->event_create(ret, CU_EVENT_DISABLE_TIMING);
        if (result == CUDA_SUCCESS && (result = record_over(context, *ret)) != CUDA_SUCCESS)
            (void)real->event_destroy(*ret);
    }
    sg_captures_allow();
    return result;
}

/* cuCtxSynchronize ruins captures of other streams of the context, and one may begin just before it. A program that
   captures is waited for by an event instead. */
static CUresult synchronize_by_event(CUcontext context)
{
    CUcontext current = NULL, popped;
    CUevent event;
    CUresult result = real->ctx_get_current(&current);
    bool pushed = context && context != current;
    if (result == CUDA_SUCCESS && pushed)
        result = real->ctx_push(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = fence_outside_capture(context ? context : current, &event);
    if (result == CUDA_SUCCESS) {
        long slice = FIRST_SLICE_NS / 8;
        for (unsigned asked = 0; (result = query_outside_capture(event)) == CUDA_ERROR_NOT_READY; asked++) {
            if (asked < EAGER) { /* most of what is waited for is over sooner than the shortest sleep */
                sched_yield();
                continue;
            }
            sg_rest(slice);
            slice = slice < LAST_SLICE_NS ? 2 * slice : slice;
        }
        (void)real->event_destroy(event);
    }
    if (pushed)
        (void)real->ctx_pop(&popped);
    return result;
}

/* True if a context is waited for by an event during captures. Where that is slow it is done as by a driver that has no
   such events. */
static bool waits_by_event(void)
{
    return real->ctx_record_event && !records_slowly();
}

static CUresult synchronize_in_capture(CUcontext context)
{
    if (!waits_by_event())
        return sg_captures_wait(context);
    return sg_captures_active() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : synchronize_by_event(context);
}

static CUresult synchronize_current(void)
{
    if (sg_this_thread()->aside && !(sg_captures_any() && waits_by_event()))
        return sg_captures_wait_aside();
    return sg_captures_any() ? synchronize_in_capture(NULL) : real->ctx_synchronize();
}

CUresult sg_captures_synchronize(void)
{
    return synchronize_current();
}

static __attribute__((noinline)) CUresult synchronize_slowly(CUcontext context)
{
    int use = sg_context_pin(context);
    if (use < 0)
        return CUDA_SUCCESS;
    CUresult result = sg_captures_any() ? synchronize_in_capture(context) : sg_driver_synchronize(real, context);
    sg_context_unpin(use);
    return result;
}

/* Another thread may end it. */
static CUresult synchronize_of(CUcontext context)
{
    struct sg_thread *self = sg_this_thread();
    if (sg_captures_any() || !sg_context_pin_cached(self, context))
        return synchronize_slowly(context);
    CUresult result = sg_driver_synchronize(real, context);
    sg_context_unpin_cached(self);
    return result;
}

/* Nobody may wait while captures are excluded, and no allocation for ever: work may be queued that ends only when the
   program goes on. */
static CUresult synchronize_in_slices(CUevent event)
{
    uint64_t limit = (uint64_t)(sg_process_conf()->wait_limit * 1e9), waited = 0;
    long slice = FIRST_SLICE_NS;
    CUresult result = query_outside_capture(event);
    while (result == CUDA_ERROR_NOT_READY && waited < limit) {
        uint64_t began = sg_clock_coarse_ns();
        sg_rest(slice);
        uint64_t took = sg_clock_coarse_ns() - began;
        waited += took > (uint64_t)slice ? took : (uint64_t)slice;
        slice = slice < LAST_SLICE_NS ? 2 * slice : slice;
        result = query_outside_capture(event);
    }
    return result;
}

/* Five functions are replaced, all others are the driver's own. */
void sg_captures_make_driver_safe(const struct sg_driver *driver, struct sg_driver *ret)
{
    real = driver;
    atomic_store(&recorded.times, 0);
    atomic_store(&recorded.least_ns, 0);
    *ret = *driver;
    ret->event_query = query_outside_capture;
    ret->event_record = record_outside_capture;
    ret->event_synchronize = synchronize_in_slices;
    ret->ctx_synchronize = synchronize_current;
    ret->ctx_synchronize_of = synchronize_of;
    if (driver->ctx_record_event)
        ret->ctx_record_event = record_context_outside_capture;
}
