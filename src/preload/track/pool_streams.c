/* A ring of handles, each an atomic word. An asker announces itself before it reads a handle. A thread that takes one out looks
   for askers afterwards. So one of the two sees the other. The context is kept beside it: a handle of one that has ended may
   not be named. */
#include "track/pool_streams.h"

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/rest.h"
#include "process/capture_mode.h"
#include "process/hooks.h"
#include "process/process.h"
#include "track/captures.h"
#include "track/context_pins.h"
#include "track/default_streams.h"
#include "track/stream_handle.h"

enum { STREAMS = 64, REST_NS = 20000, LONGEST_REST_NS = 200000 };

static struct {
    _Atomic(CUstream) stream[STREAMS]; /* NULL: free, or being changed */
    _Atomic(CUcontext) context[STREAMS];
    atomic_uint next;                  /* the place for the next one */
    atomic_int asking;                 /* threads that may name one of them in a call */
} pool_streams;

void sg_pool_streams_note(CUstream stream, bool per_thread)
{
    const struct sg_driver *driver = sg_process_driver();
    CUstream named = sg_stream_named(stream, per_thread);
    CUcontext context;
    if (named == CU_STREAM_LEGACY || named == CU_STREAM_PER_THREAD) {
        sg_default_streams_note(named);
        return;
    }
    for (int i = 0; i < STREAMS; i++)
        if (atomic_load_explicit(&pool_streams.stream[i], memory_order_relaxed) == named)
            return;
    if (!driver || !driver->stream_get_ctx || driver->stream_get_ctx(named, &context) != CUDA_SUCCESS)
        return;
    unsigned place = atomic_fetch_add(&pool_streams.next, 1) % STREAMS;
    atomic_store(&pool_streams.stream[place], NULL);
    atomic_store(&pool_streams.context[place], context);
    atomic_store(&pool_streams.stream[place], named);
}

/* A query takes microseconds, so the wait has a bound for the child of a fork, in which an asker may be gone. */
void sg_pool_streams_gone(CUstream stream)
{
    enum { RESTS_MOST = 5000 };
    bool found = false;
    for (int i = 0; i < STREAMS && stream; i++) {
        CUstream named = stream;
        found |= atomic_compare_exchange_strong(&pool_streams.stream[i], &named, NULL);
    }
    for (int i = 0; found && i < RESTS_MOST && atomic_load(&pool_streams.asking); i++)
        sg_rest(REST_NS);
}

/* Its streams are no more, so nothing is asked about them. */
void sg_pool_streams_context_gone(CUcontext context)
{
    for (int i = 0; i < STREAMS; i++)
        if (atomic_load(&pool_streams.context[i]) == context)
            atomic_store(&pool_streams.stream[i], NULL);
    sg_default_streams_context_gone(context);
}

/* One stream that is waited for. */
struct place {
    int at;        /* in the ring; behind it are the default streams */
    CUstream open; /* that was not captured after so many joins */
    unsigned joins;
};

/* Only the driver knows, since a stream may have joined a capture by an event that was not followed. It is asked again once
   any stream may have. */
static bool is_free_of_captures(CUstream stream, struct place *place)
{
    const struct sg_driver *driver = sg_process_driver();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (place->open == stream && place->joins == sg_captures_joins())
        return true;
    if (!driver->stream_is_capturing || driver->stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    place->open = stream;
    place->joins = sg_captures_joins();
    return true;
}

/* Nothing begins to be captured between the question and the call. The call that waits comes once there is nothing to wait
   for: only at that does a pool give memory back. */
static CUresult stream_ask(CUstream stream, struct place *place)
{
    sg_captures_exclude();
    CUresult result = is_free_of_captures(stream, place) ? sg_real()->cuStreamQuery(stream)
                                                    : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (result == CUDA_SUCCESS)
        result = sg_real()->cuStreamSynchronize(stream);
    sg_captures_allow();
    return result;
}

/* The stream at one place of the ring; CUDA_ERROR_INVALID_HANDLE: there is none, or its context has gone. */
static CUresult place_ask(struct place *place)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    if (place->at >= STREAMS)
        return sg_default_streams_ask(place->at - STREAMS);
    atomic_fetch_add(&pool_streams.asking, 1);
    CUstream stream = atomic_load(&pool_streams.stream[place->at]);
    int use = stream ? sg_context_pin(atomic_load(&pool_streams.context[place->at])) : -1;
    if (use >= 0 && atomic_load(&pool_streams.stream[place->at]) == stream)
        result = stream_ask(stream, place);
    if (use >= 0)
        sg_context_unpin(use);
    atomic_fetch_sub(&pool_streams.asking, 1);
    return result;
}

/* In rests, so that a stream which waits for this thread keeps it no longer than the limit. */
bool sg_pool_streams_waited(uint64_t limit_ns)
{
    CUstreamCaptureMode mode;
    uint64_t waited_ns = 0;
    bool any = false;
    if (!sg_process_driver() || !sg_capture_mode_relax(&mode))
        return false;
    sg_default_streams_settle();
    for (int at = 0; at < STREAMS + SG_DEFAULT_STREAMS; at++) {
        long rest = REST_NS;
        struct place place = {.at = at};
        CUresult result = place_ask(&place);
        for (; result == CUDA_ERROR_NOT_READY && waited_ns < limit_ns; result = place_ask(&place)) {
            uint64_t began = sg_clock_coarse_ns();
            sg_rest(rest);
            uint64_t took = sg_clock_coarse_ns() - began;
            waited_ns += took > (uint64_t)rest ? took : (uint64_t)rest;
            rest = rest < LONGEST_REST_NS ? 2 * rest : rest;
        }
        any |= result == CUDA_SUCCESS;
    }
    sg_capture_mode_restore(&mode);
    return any;
}
