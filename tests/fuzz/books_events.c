/* Contexts, streams and events of the driver of a random program. */
#include <string.h>

#include "books_parts.h"

enum { EVENTS = 1 << 12 };

struct event {
    bool live, recorded;
    int8_t context;
    struct work_after after;
};

static struct {
    struct event event[EVENTS];
    uint32_t events, live_events;
    bool named;
    int context, device;
    int below[16]; /* what was current before each push */
    unsigned pushed;
} the;

void books_use(int context, int device)
{
    the.context = context;
    the.device = device;
}

int books_current(void)
{
    return the.context;
}

int books_device(void)
{
    return the.device;
}

uint32_t books_events(void)
{
    return the.live_events;
}

void books_reset_events(bool named)
{
    the.events = the.live_events = 0;
    the.named = named;
    the.context = the.device = 0;
    the.pushed = 0;
}

void books_drop_events(int context)
{
    for (uint32_t i = 0; i < the.events; i++) {
        if (the.event[i].live && the.event[i].context == context) {
            the.event[i].live = false;
            the.live_events--;
        }
    }
}

/* Contexts are their number and one. */
static int number_of(CUcontext context)
{
    return (int)(uintptr_t)context - 1;
}

CUresult books_ctx_get_current(CUcontext *ret)
{
    *ret = the.named ? (CUcontext)(uintptr_t)(the.context + 1) : NULL;
    return CUDA_SUCCESS;
}

CUresult books_ctx_push(CUcontext context)
{
    if (books_fails(BOOKS_ctx_push))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (the.pushed == sizeof the.below / sizeof *the.below)
        return books_refuses("contexts are pushed and never popped");
    the.below[the.pushed++] = the.context;
    the.context = number_of(context);
    return CUDA_SUCCESS;
}

CUresult books_ctx_pop(CUcontext *ret)
{
    if (!the.pushed)
        return books_refuses("a context is popped that was not pushed");
    *ret = (CUcontext)(uintptr_t)(the.context + 1);
    the.context = the.below[--the.pushed];
    return CUDA_SUCCESS;
}

static CUresult synchronize(int context)
{
    if (books_fails(BOOKS_ctx_synchronize))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    struct work_after all = work_of_context(context);
    work_finish(&all);
    return CUDA_SUCCESS;
}

CUresult books_ctx_synchronize(void)
{
    return synchronize(the.context);
}

CUresult books_ctx_synchronize_of(CUcontext context)
{
    return synchronize(number_of(context));
}

CUresult books_event_create(CUevent *ret, unsigned flags)
{
    (void)flags;
    uint32_t i = 0;
    while (i < the.events && the.event[i].live)
        i++;
    if (books_fails(BOOKS_event_create) || i == EVENTS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    the.event[i] = (struct event){.live = true, .context = (int8_t)the.context};
    the.events = i == the.events ? i + 1 : the.events;
    the.live_events++;
    *ret = (CUevent)(uintptr_t)(i + 1);
    return CUDA_SUCCESS;
}

static struct event *event_of(CUevent event)
{
    uintptr_t i = (uintptr_t)event;
    bool live = i > 0 && i <= the.events && the.event[i - 1].live;
    if (!live)
        books_breaks("an event is used that does not exist");
    return live ? &the.event[i - 1] : NULL;
}

CUresult books_event_destroy(CUevent id)
{
    struct event *event = event_of(id);
    if (!event || books_fails(BOOKS_event_destroy))
        return CUDA_ERROR_INVALID_VALUE;
    event->live = false;
    the.live_events--;
    return CUDA_SUCCESS;
}

CUresult books_event_query(CUevent id)
{
    struct event *event = event_of(id);
    if (!event || books_fails(BOOKS_event_query))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    return work_is_complete(&event->after) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult books_event_synchronize(CUevent id)
{
    struct event *event = event_of(id);
    if (!event || books_fails(BOOKS_event_synchronize))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    work_finish(&event->after);
    return CUDA_SUCCESS;
}

CUresult books_ctx_record_event(CUcontext context, CUevent id)
{
    struct event *event = event_of(id);
    int of = context ? number_of(context) : the.context;
    if (!event || books_fails(BOOKS_ctx_record_event))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (event->context != of)
        return books_refuses("an event is recorded over another context than its own");
    event->after = work_of_context(of);
    event->recorded = true;
    return CUDA_SUCCESS;
}

/* Streams are their number and one. */
static int stream_of(CUstream stream)
{
    int i = (int)(uintptr_t)stream - 1;
    bool is = i >= 0 && i < FUZZ_STREAMS && work.stream[i].alive;
    if (!is)
        books_breaks("a stream is used that does not exist");
    return is ? i : -1;
}

CUresult books_event_record(CUevent id, CUstream handle)
{
    struct event *event = event_of(id);
    int i = stream_of(handle);
    if (!event || i < 0 || books_fails(BOOKS_event_record))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (work.stream[i].nature == FUZZ_OWN)
        return books_refuses("an event is recorded on another thread's own stream");
    if (event->context != work.stream[i].context)
        return books_refuses("an event is recorded on a stream of another context");
    event->after = work_up_to(i);
    event->recorded = true;
    return CUDA_SUCCESS;
}
