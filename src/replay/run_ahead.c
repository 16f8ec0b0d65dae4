#include "run_ahead.h"

#include <stdlib.h>

#include "base/idmap.h"
#include "recordings.h"

/* A recording of an event, in the two worlds that a play keeps apart: work of the card, and knowledge of the core. */
struct recording {
    struct sg_ledger_clock work;  /* what it came after */
    struct sg_vector_clock known; /* as the core knew */
    int device;
};

struct sg_ahead {
    struct sg_core *core;
    struct sg_ledger *card;
    struct sg_recordings recordings;
    bool has_work;          /* the trace says what work there is */
    struct sg_idmap number; /* by stream of the trace, + 1: its number in the queue */
    uint32_t numbers;
    bool followed[SG_CARD_STREAMS];
    sg_slot slot[SG_CARD_STREAMS]; /* by number in the queue */
};

struct sg_ahead *sg_ahead_new(struct sg_core *core, struct sg_ledger *card, uint64_t run_ahead)
{
    struct sg_ahead *ahead = calloc(1, sizeof *ahead);
    if (!ahead)
        return NULL;
    ahead->core = core;
    ahead->card = card;
    card->queue = sg_lag_queue_new(run_ahead);
    if (card->queue && sg_idmap_init(&ahead->number) && sg_recordings_init(&ahead->recordings, sizeof(struct recording)))
        return ahead;
    sg_ahead_delete(ahead);
    return NULL;
}

void sg_ahead_delete(struct sg_ahead *ahead)
{
    if (!ahead)
        return;
    sg_lag_queue_delete(ahead->card->queue);
    ahead->card->queue = NULL;
    sg_recordings_fini(&ahead->recordings);
    sg_idmap_fini(&ahead->number);
    free(ahead);
}

/* A stream's number in the queue: those of the trace in the order of their first use, as their own numbers may be large.
   PyTorch's streams, like all that libraries make, do not take part in the legacy stream's order, and the trace has a
   row for every order there is: so none is given flags. Streams that share a number are not followed. */
static uint32_t ahead_stream_number(struct sg_ahead *ahead, int device, uint32_t stream)
{
    /* Numbers in the map are one higher, since 0 means that a stream is not there. */
    uint64_t known = sg_idmap_get(&ahead->number, stream);
    if (!known) {
        known = ahead->numbers + 1;
        if (ahead->numbers < SG_CARD_STREAMS - 1 && sg_idmap_put(&ahead->number, stream, known))
            ahead->numbers++;
    }
    uint32_t number = sg_lag_queue_stream(ahead->card->queue, known - 1, device);
    if (!ahead->followed[number] && number < SG_CARD_STREAMS - 1) {
        const struct sg_stream_id id = {.key = number + 1, .handle = (CUstream)(uintptr_t)number};
        ahead->slot[number] = sg_core_slot(ahead->core, device, &id);
        ahead->followed[number] = true;
    }
    return number;
}

void sg_ahead_tag(struct sg_ahead *ahead, int device, uint32_t stream, struct sg_tag *tag)
{
    uint32_t number = ahead_stream_number(ahead, device, stream);
    tag->stream = (CUstream)(uintptr_t)number;
    tag->has_stream = true;
    tag->slot = ahead->slot[number];
}

/* A stream is given a piece of work: the queue counts it, and the core's time goes on. */
static void ahead_submit(struct sg_ahead *ahead, int device, uint32_t number)
{
    sg_lag_queue_submit(ahead->card->queue, number);
    sg_core_slot_submitted(ahead->core, device, ahead->slot[number]);
}

void sg_ahead_allocated(struct sg_ahead *ahead, int device, uint32_t stream)
{
    sg_lag_queue_made(ahead->card->queue);
    if (!ahead->has_work)
        ahead_submit(ahead, device, ahead_stream_number(ahead, device, stream));
}

/* Notes what an event that is recorded now comes after, by the queue and by the core. */
static void ahead_record_event(struct sg_ahead *ahead, int device, uint32_t number, struct recording *ret)
{
    ret->device = device;
    sg_core_clock(ahead->core, device, ahead->slot[number], &ret->known);
    sg_lag_queue_record(ahead->card->queue, number, &ret->work);
}

static void ahead_wait_on_stream(struct sg_ahead *ahead, int device, uint32_t number, const struct recording *recording)
{
    if (!recording)
        return;
    sg_lag_queue_wait(ahead->card->queue, number, &recording->work);
    if (recording->device == device) /* of other devices' streams a device knows nothing */
        sg_core_ordered_after(ahead->core, device, ahead->slot[number], &recording->known);
}

/* The host has waited for a recording: the queue completes its work, and the core is called with the same. */
static void ahead_wait_on_host(struct sg_ahead *ahead, const struct recording *recording)
{
    sg_lag_queue_finish(ahead->card->queue, &recording->work);
    sg_core_completed(ahead->core, recording->device, &recording->known);
}

/* The host waits for all work of a device. */
static void ahead_wait_for_device(struct sg_ahead *ahead, int device)
{
    struct recording all = {.device = device};
    sg_core_context_clock(ahead->core, device, NULL, &all.known);
    sg_lag_queue_record_all(ahead->card->queue, device, &all.work);
    ahead_wait_on_host(ahead, &all);
}

void sg_ahead_work(struct sg_ahead *ahead, int device, const struct segalloc_trace_record *record)
{
    /* The first row about work ends the assumption that work follows each allocation: the trace says it from here on. */
    struct recording *recording = sg_recordings_get(&ahead->recordings, record->id), now;
    ahead->has_work = true;
    switch (record->kind) {
    case SEGALLOC_RECORD_LAUNCH:
        ahead_submit(ahead, device, ahead_stream_number(ahead, device, record->stream));
        break;
    case SEGALLOC_RECORD_EVENT_RECORD:
        ahead_record_event(ahead, device, ahead_stream_number(ahead, device, record->stream),
            sg_recordings_put(&ahead->recordings, record->id));
        break;
    case SEGALLOC_RECORD_STREAM_WAIT:
        ahead_wait_on_stream(ahead, device, ahead_stream_number(ahead, device, record->stream), recording);
        break;
    case SEGALLOC_RECORD_EVENT_SYNC:
        if (recording)
            ahead_wait_on_host(ahead, recording);
        break;
    case SEGALLOC_RECORD_EVENT_QUERY: /* the core finds out only what the played device has done by now */
        if (recording && sg_lag_queue_is_complete(ahead->card->queue, &recording->work))
            sg_core_completed(ahead->core, recording->device, &recording->known);
        break;
    case SEGALLOC_RECORD_STREAM_SYNC:
        ahead_record_event(ahead, device, ahead_stream_number(ahead, device, record->stream), &now);
        ahead_wait_on_host(ahead, &now);
        break;
    case SEGALLOC_RECORD_DEVICE_SYNC:
        ahead_wait_for_device(ahead, device);
        break;
    default:
        break;
    }
}
