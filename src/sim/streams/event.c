#include "streams/event.h"

#include <stdlib.h>
#include <time.h>

#include "streams/queue.h"

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The clock of all records of interprocess events made here. Another process may have waited for one of them before it
   recorded its own. A wait for a record from elsewhere therefore counts as after all of it. The checker, which sees one
   process, so reports nothing that is not so. */
static struct sim_clock shown;

/* It is recorded anew: what it stood for in a capture is forgotten. */
static void event_forget_capture(CUevent event)
{
    if (event->capture)
        sim_capture_unref(event->capture);
    event->capture = NULL;
    sim_nodes_clear(&event->tips);
}

void sim_event_unref(CUevent event)
{
    if (--event->refs == 0) {
        event_forget_capture(event);
        if (event->stream)
            sim_stream_unref(event->stream);
        sim_clock_clear(&event->clock);
        if (event->records)
            sim_records_drop(event->records);
        free(event);
    }
}

CUresult sim_event_get(CUevent handle, CUevent *ret)
{
    if (!sim_handle_valid(handle, SIM_KIND_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    *ret = handle;
    return handle->context->alive ? handle->context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool sim_event_is_foreign(CUevent event)
{
    return event->records && sim_records_last(event->records) > event->number;
}

bool sim_event_is_complete(CUevent event)
{
    if (sim_event_is_foreign(event))
        return sim_records_reached(event->records, sim_records_last(event->records));
    return !event->stream || event->stream->completed >= event->position;
}

const struct sim_clock *sim_event_clock(CUevent event)
{
    return sim_event_is_foreign(event) ? &shown : &event->clock;
}

CUresult sim_event_new(CUevent *ret, unsigned flags, struct sim_records *records)
{
    CUevent event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_context_current(&event->context);
    if (result != CUDA_SUCCESS) {
        free(event);
        return result;
    }
    event->flags = flags;
    event->records = records;
    event->refs = 1;
    sim_handle_add(&event->handle, SIM_KIND_EVENT);
    *ret = event;
    return CUDA_SUCCESS;
}

/* A point of an event: what the work of a record reaches, or waits for. */
struct point {
    CUevent event;
    uint64_t number; /* of an interprocess one */
};

static void event_finish_record(struct sim_work *work)
{
    struct point *point = (struct point *)work->payload;
    CUevent event = point->event;
    if (!work->dropped && event->stream == work->stream && event->position == work->position)
        event->time_ns = sim_now_ns();
    if (event->records)
        sim_records_end(event->records, point->number);
    sim_event_unref(event);
}

struct sim_work *sim_event_new_record(CUevent event)
{
    struct sim_work *work = sim_work_new(sizeof(struct point), NULL, event_finish_record);
    if (work) {
        if (event->records)
            event->number = sim_records_begin(event->records);
        *(struct point *)work->payload = (struct point){event, event->number};
        event->refs++;
    }
    return work;
}

/* True while the process that made the record has still to reach it. Needs no lock: the work holds the event. */
static bool event_is_held_up(const struct sim_work *work)
{
    const struct point *point = (const struct point *)work->payload;
    return !sim_records_reached(point->event->records, point->number);
}

static void event_run_wait(struct sim_work *work)
{
    const struct timespec pause = {.tv_nsec = 50000};
    while (event_is_held_up(work) && sim_state_now() == SIM_READY)
        nanosleep(&pause, NULL);
}

static void event_finish_wait(struct sim_work *work)
{
    sim_event_unref(((struct point *)work->payload)->event);
}

struct sim_work *sim_event_new_foreign_wait(CUevent event)
{
    struct sim_work *work = sim_work_new(sizeof(struct point), event_run_wait, event_finish_wait);
    if (work) {
        *(struct point *)work->payload = (struct point){event, sim_records_last(event->records)};
        event->refs++;
        work->may_wait = true;
        work->blocked = event_is_held_up;
    }
    return work;
}

void sim_event_set_record(CUevent event, CUstream stream, uint64_t position)
{
    sim_stream_ref(stream);
    if (event->stream)
        sim_stream_unref(event->stream);
    event->stream = stream;
    event->position = position;
    sim_clock_clear(&event->clock);
    if (stream->kind == SIM_STREAM_MARKER)
        sim_order_context(stream->context, &event->clock);
    else
        sim_clock_join(&event->clock, &stream->clock);
    if (event->records)
        sim_clock_join(&shown, &event->clock);
    event_forget_capture(event);
}

void sim_event_ref(CUevent event)
{
    event->refs++;
}

CUresult sim_event_submit_record(CUevent event, CUstream stream)
{
    struct sim_work *work = sim_event_new_record(event);
    uint64_t position;
    CUresult result = work ? sim_enqueue(stream, work, false, &position) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        sim_event_set_record(event, stream, position);
    return result;
}

CUresult sim_event_recorded(CUevent event, CUstream stream, uint64_t position)
{
    if (event->records)
        return sim_event_submit_record(event, stream);
    sim_event_set_record(event, stream, position);
    event->time_ns = sim_now_ns();
    return CUDA_SUCCESS;
}

CUresult sim_event_wait(CUevent event, CUstream stream)
{
    sim_order_stream_after(stream, sim_event_clock(event));
    if (event->capture || sim_event_is_complete(event))
        return CUDA_SUCCESS;
    if (sim_event_is_foreign(event)) {
        struct sim_work *work = sim_event_new_foreign_wait(event);
        return work ? sim_enqueue(stream, work, false, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_work *work = sim_work_new(0, NULL, NULL);
    if (work && sim_work_depend(work, event->stream, event->position) == 0)
        return sim_enqueue(stream, work, false, NULL);
    if (work)
        sim_work_free(work);
    return CUDA_ERROR_OUT_OF_MEMORY;
}
