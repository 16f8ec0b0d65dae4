/* A place belongs to a context from when that is written there. Its event is written last, and taken out first. */
#include "track/default_streams.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "process/process.h"
#include "process/thread.h"
#include "track/captures.h"
#include "track/context_pins.h"
#include "track/context_table.h"

static struct {
    struct place {
        _Atomic(CUcontext) context;   /* NULL: free */
        _Atomic(const void *) thread; /* whose own stream it is; NULL: the legacy stream; whole_context: all streams */
        _Atomic(CUevent) event;       /* NULL: not made yet */
    } place[SG_DEFAULT_STREAMS];
    atomic_uint next;   /* where the next stream without a place looks for one */
    atomic_bool marked; /* frees while no capture was active have no event behind them yet */
} default_streams;

static const char whole_context;

static struct place *default_streams_find(CUcontext context, const void *thread)
{
    for (int i = 0; i < SG_DEFAULT_STREAMS; i++) {
        struct place *place = &default_streams.place[i];
        if (atomic_load(&place->context) == context && atomic_load(&place->thread) == thread &&
            atomic_load(&place->event))
            return place;
    }
    return NULL;
}

/* A free place, with an event; NULL: there is none. */
static struct place *default_streams_claim(CUcontext context, const void *thread)
{
    for (int i = 0; i < SG_DEFAULT_STREAMS; i++) {
        struct place *place = &default_streams.place[i];
        CUcontext none = NULL;
        CUevent event;
        if (!atomic_compare_exchange_strong(&place->context, &none, context))
            continue;
        if (sg_process_driver()->event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
            atomic_store(&place->context, NULL);
            return NULL;
        }
        atomic_store(&place->thread, thread);
        atomic_store(&place->event, event);
        return place;
    }
    return NULL;
}

static struct place *default_streams_take_over(CUcontext context, const void *thread)
{
    unsigned next = atomic_fetch_add(&default_streams.next, 1);
    for (unsigned i = 0; i < SG_DEFAULT_STREAMS; i++) {
        struct place *place = &default_streams.place[(next + i) % SG_DEFAULT_STREAMS];
        if (atomic_load(&place->context) != context || !atomic_load(&place->event))
            continue;
        atomic_store(&place->thread, thread);
        return place;
    }
    return NULL;
}

/* The driver answers for the legacy stream with an error where a blocking stream is captured. A record in a thread's own stream
   that is captured would be part of the capture. */
static void default_streams_record(CUstream named, CUevent event)
{
    const struct sg_driver *driver = sg_process_driver();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    sg_captures_exclude();
    if (driver->stream_is_capturing(named, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE)
        (void)driver->event_record(event, named);
    sg_captures_allow();
}

/* In the current context: the event that a thread's stream has, or gets. NULL: none can be had. */
static CUevent default_streams_event(CUcontext context, const void *thread)
{
    struct place *place = default_streams_find(context, thread);
    if (!place)
        place = default_streams_claim(context, thread);
    if (!place)
        place = default_streams_take_over(context, thread);
    return place ? atomic_load(&place->event) : NULL;
}

/* True if the mark is enough: no capture is active, so whoever begins one comes after it. */
static bool default_streams_marked(const struct sg_driver *driver)
{
    if (!driver->ctx_record_event)
        return false;
    if (!atomic_load(&default_streams.marked))
        atomic_store(&default_streams.marked, true);
    return !sg_captures_active();
}

void sg_default_streams_note(CUstream named)
{
    const struct sg_driver *driver = sg_process_driver();
    CUcontext context = NULL;
    if (!driver || !driver->stream_is_capturing || default_streams_marked(driver) ||
        driver->ctx_get_current(&context) != CUDA_SUCCESS || !context)
        return;
    CUevent event = default_streams_event(context, named == CU_STREAM_PER_THREAD ? &sg_self : NULL);
    if (event)
        default_streams_record(named, event);
}

/* False: a capture is active, which the record would end. */
static bool default_streams_record_over(CUcontext context)
{
    bool left = true;
    int use = sg_context_pin_current(context);
    CUevent event = use >= 0 ? default_streams_event(context, &whole_context) : NULL;
    if (event) {
        sg_captures_exclude();
        left = !sg_captures_active();
        if (left)
            (void)sg_process_driver()->ctx_record_event(context, event);
        sg_captures_allow();
    }
    if (use >= 0)
        sg_context_unpin_current(use);
    return left;
}

/* The mark goes first: a free meanwhile sets it again. */
void sg_default_streams_settle(void)
{
    bool left = true;
    if (!atomic_load(&default_streams.marked) || sg_captures_active())
        return;
    atomic_store(&default_streams.marked, false);
    int used = atomic_load(&sg_context_table.used);
    for (int i = 0; i < used && left; i++) {
        CUcontext context = atomic_load(&sg_context_table.entry[i].context);
        if (context)
            left = default_streams_record_over(context);
    }
    if (!left)
        atomic_store(&default_streams.marked, true);
}

/* The call that waits comes once there is nothing to wait for: only at that does a pool give memory back. */
CUresult sg_default_streams_ask(int place)
{
    const struct sg_driver *driver = sg_process_driver();
    struct place *at = &default_streams.place[place];
    CUcontext context = atomic_load(&at->context);
    CUevent event = atomic_load(&at->event);
    int use = context && event ? sg_context_pin(context) : -1;
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    if (use >= 0 && atomic_load(&at->event) == event && atomic_load(&at->context) == context) {
        result = driver->event_query(event);
        if (result == CUDA_SUCCESS)
            result = driver->event_synchronize(event);
    }
    if (use >= 0)
        sg_context_unpin(use);
    return result;
}

void sg_default_streams_context_gone(CUcontext context)
{
    for (int i = 0; i < SG_DEFAULT_STREAMS; i++) {
        struct place *place = &default_streams.place[i];
        if (atomic_load(&place->context) != context)
            continue;
        atomic_store(&place->event, NULL);
        atomic_store(&place->context, NULL);
    }
}
