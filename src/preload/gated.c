/* The driver as the core calls it: what could ruin a capture is asked for under the lock that keeps captures from
   beginning, and not at all where one is live that it would ruin. Source of what does: cuda.h, the texts of
   cuThreadExchangeStreamCaptureMode, cuCtxRecordEvent, cuStreamQuery and cuStreamIsCapturing. */
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "captures.h"
#include "clock.h"
#include "contexts.h"
#include "life.h"

static const struct sg_driver *real_driver(void)
{
    return sg_life_driver();
}

/* Events of ours are never recorded in a capture: a thread in relaxed mode may always ask for one. */
static CUresult query_held(CUevent event)
{
    const struct sg_driver *driver = real_driver();
    CUstreamCaptureMode mode;
    CUresult result = CUDA_ERROR_NOT_READY;
    sg_captures_hold();
    bool live = sg_captures_live();
    bool relaxed = live && sg_captures_relax(&mode);
    if (!live || relaxed)
        result = driver->event_query(event);
    if (relaxed)
        sg_captures_restore(&mode);
    sg_captures_unhold();
    return result;
}

/* Whether a stream may be given work of ours: not while it is captured, nor the legacy one beside a captured one that it
   orders. */
static bool is_open(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const struct sg_driver *driver = real_driver();
    if (!sg_captures_live())
        return true;
    return stream && stream != CU_STREAM_LEGACY && driver->stream_is_capturing &&
        driver->stream_is_capturing(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult record_held(CUevent event, CUstream stream)
{
    sg_captures_hold();
    CUresult result = is_open(stream) ? real_driver()->event_record(event, stream)
                                      : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sg_captures_unhold();
    return result;
}

static CUresult wait_held(CUstream stream, CUevent event, unsigned flags)
{
    sg_captures_hold();
    CUresult result = is_open(stream) ? real_driver()->stream_wait_event(stream, event, flags)
                                      : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sg_captures_unhold();
    return result;
}

static CUresult record_context_held(CUcontext context, CUevent event)
{
    sg_captures_hold();
    CUresult result = sg_captures_live() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                         : real_driver()->ctx_record_event(context, event);
    sg_captures_unhold();
    return result;
}

static CUresult query_stream_held(CUstream stream)
{
    const struct sg_driver *driver = real_driver();
    CUstreamCaptureMode mode;
    CUresult result = CUDA_ERROR_NOT_READY;
    sg_captures_hold();
    bool live = sg_captures_live();
    bool relaxed = live && is_open(stream) && sg_captures_relax(&mode);
    if (!live || relaxed)
        result = driver->stream_query(stream);
    if (relaxed)
        sg_captures_restore(&mode);
    sg_captures_unhold();
    return result;
}

enum { FIRST_SLICE_NS = 20000, LAST_SLICE_NS = 200000, EAGER = 64 /* times */ };

static CUresult synchronize_plainly(const struct sg_driver *driver, CUcontext context)
{
    CUcontext popped;
    if (!context)
        return driver->ctx_synchronize();
    if (driver->ctx_synchronize_of)
        return driver->ctx_synchronize_of(context);
    CUresult result = driver->ctx_push(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->ctx_synchronize();
    (void)driver->ctx_pop(&popped); /* what was current before is again */
    return result;
}

/* An event of ours over a context, which is current. */
static CUresult mark_held(CUcontext context, CUevent *ret)
{
    const struct sg_driver *driver = real_driver();
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sg_captures_hold();
    if (!sg_captures_live()) {
        result = driver->event_create(ret, CU_EVENT_DISABLE_TIMING);
        if (result == CUDA_SUCCESS && (result = driver->ctx_record_event(context, *ret)) != CUDA_SUCCESS)
            (void)driver->event_destroy(*ret);
    }
    sg_captures_unhold();
    return result;
}

/* cuCtxSynchronize ruins what other streams of the context capture, and one may begin to just before it: a program that
   captures is waited for by an event instead. */
static CUresult synchronize_by_event(const struct sg_driver *driver, CUcontext context)
{
    CUcontext current = NULL, popped;
    CUevent event;
    CUresult result = driver->ctx_get_current(&current);
    bool pushed = context && context != current;
    if (result == CUDA_SUCCESS && pushed)
        result = driver->ctx_push(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = mark_held(context ? context : current, &event);
    if (result == CUDA_SUCCESS) {
        long slice = FIRST_SLICE_NS / 8;
        for (unsigned asked = 0; (result = query_held(event)) == CUDA_ERROR_NOT_READY; asked++) {
            if (asked < EAGER) { /* most of what is waited for is over sooner than the shortest sleep */
                sched_yield();
                continue;
            }
            nanosleep(&(struct timespec){.tv_nsec = slice}, NULL);
            slice = slice < LAST_SLICE_NS ? 2 * slice : slice;
        }
        (void)driver->event_destroy(event);
    }
    if (pushed)
        (void)driver->ctx_pop(&popped);
    return result;
}

static CUresult synchronize_beside(CUcontext context)
{
    const struct sg_driver *driver = real_driver();
    if (sg_captures_live())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return sg_captures_any() && driver->ctx_record_event ? synchronize_by_event(driver, context)
                                                         : synchronize_plainly(driver, context);
}

static CUresult synchronize_current(void)
{
    return synchronize_beside(NULL);
}

/* Another thread may end it. */
static CUresult synchronize_of(CUcontext context)
{
    if (!sg_contexts_use(context))
        return CUDA_SUCCESS;
    CUresult result = synchronize_beside(context);
    sg_contexts_unuse(context);
    return result;
}

/* Nobody may wait under that lock, and no allocation for ever: work may be queued that ends only when the program goes
   on. */
static CUresult synchronize_in_slices(CUevent event)
{
    uint64_t limit = (uint64_t)(sg_life_conf()->wait_limit * 1e9), waited = 0;
    long slice = FIRST_SLICE_NS;
    CUresult result = query_held(event);
    while (result == CUDA_ERROR_NOT_READY && waited < limit) {
        uint64_t began = sg_clock_coarse_ns();
        nanosleep(&(struct timespec){.tv_nsec = slice}, NULL);
        uint64_t took = sg_clock_coarse_ns() - began;
        waited += took > (uint64_t)slice ? took : (uint64_t)slice;
        slice = slice < LAST_SLICE_NS ? 2 * slice : slice;
        result = query_held(event);
    }
    return result;
}

void sg_captures_gate(const struct sg_driver *driver, struct sg_driver *ret)
{
    *ret = *driver;
    ret->event_query = query_held;
    ret->event_record = record_held;
    ret->event_synchronize = synchronize_in_slices;
    ret->stream_wait_event = wait_held;
    ret->stream_query = query_stream_held;
    ret->ctx_synchronize = synchronize_current;
    ret->ctx_synchronize_of = synchronize_of;
    if (driver->ctx_record_event)
        ret->ctx_record_event = record_context_held;
}
