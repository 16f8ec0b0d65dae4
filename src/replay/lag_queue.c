#include "lag_queue.h"

#include <stdlib.h>
#include <string.h>

struct sg_lag_queue *sg_lag_queue_new(uint64_t ahead)
{
    struct sg_lag_queue *queue = calloc(1, sizeof *queue);
    if (queue)
        queue->ahead = ahead;
    return queue;
}

void sg_lag_queue_delete(struct sg_lag_queue *queue)
{
    if (queue)
        free(queue->due);
    free(queue);
}

uint32_t sg_lag_queue_stream(struct sg_lag_queue *queue, uint64_t stream, int device)
{
    uint32_t number = stream < SG_CARD_STREAMS ? (uint32_t)stream : SG_CARD_STREAMS - 1;
    if (number >= queue->streams)
        queue->streams = number + 1;
    queue->device[number] = (uint8_t)device;
    return number;
}

/* Makes the ring twice as large. */
static bool lag_queue_grow(struct sg_lag_queue *queue)
{
    uint64_t room = queue->due_room ? 2 * queue->due_room : 256;
    struct sg_ledger_due *due = malloc(room * sizeof *due);
    if (!due)
        return false;
    for (uint64_t i = queue->due_first; i < queue->due_end; i++)
        due[i & (room - 1)] = queue->due[i & (queue->due_room - 1)];
    free(queue->due);
    queue->due = due;
    queue->due_room = room;
    return true;
}

void sg_lag_queue_submit(struct sg_lag_queue *queue, uint32_t stream)
{
    uint64_t position = ++queue->submitted[stream], when = queue->allocations + queue->ahead,
             last = queue->last_due[stream];
    /* A device that does not lag has no work to remember. */
    if (!queue->ahead) {
        queue->complete[stream] = position;
        return;
    }
    if (last > queue->due_first) {
        /* Pieces between two allocations fall due together, so they share an entry. That bounds the ring. */
        struct sg_ledger_due *entry = &queue->due[(last - 1) & (queue->due_room - 1)];
        if (entry->when == when) {
            entry->position = position;
            return;
        }
    }
    /* Without host memory the piece counts as complete at once: its memory is used again sooner than on a device. */
    if (queue->due_end - queue->due_first == queue->due_room && !lag_queue_grow(queue)) {
        queue->failed = true;
        queue->complete[stream] = position;
        return;
    }
    queue->due[queue->due_end & (queue->due_room - 1)] = (struct sg_ledger_due){when, position, stream};
    queue->last_due[stream] = ++queue->due_end;
}

void sg_lag_queue_made(struct sg_lag_queue *queue)
{
    queue->allocations++;
    for (; queue->due_first < queue->due_end; queue->due_first++) {
        const struct sg_ledger_due *entry = &queue->due[queue->due_first & (queue->due_room - 1)];
        if (entry->when > queue->allocations)
            break;
        /* A wait of the host may have completed more already. */
        if (queue->complete[entry->stream] < entry->position)
            queue->complete[entry->stream] = entry->position;
    }
}

void sg_ledger_clock_join(struct sg_ledger_clock *clock, const struct sg_ledger_clock *other)
{
    for (uint32_t i = 0; i < other->streams; i++)
        if (i >= clock->streams || clock->at[i] < other->at[i])
            clock->at[i] = other->at[i];
    if (clock->streams < other->streams)
        clock->streams = other->streams;
}

/* Copies the entries in use alone: a clock has 1 KiB, and nearly always a few streams. */
static void ledger_clock_copy(struct sg_ledger_clock *to, const struct sg_ledger_clock *from)
{
    to->streams = from->streams;
    memcpy(to->at, from->at, from->streams * sizeof *from->at);
}

/* Raises one entry. */
static void ledger_clock_raise(struct sg_ledger_clock *clock, uint32_t stream, uint64_t position)
{
    while (clock->streams <= stream)
        clock->at[clock->streams++] = 0;
    if (clock->at[stream] < position)
        clock->at[stream] = position;
}

void sg_lag_queue_record(const struct sg_lag_queue *queue, uint32_t stream, struct sg_ledger_clock *ret)
{
    ledger_clock_copy(ret, &queue->after[stream]);
    ledger_clock_raise(ret, stream, queue->submitted[stream]);
}

void sg_lag_queue_record_all(const struct sg_lag_queue *queue, int device, struct sg_ledger_clock *ret)
{
    ret->streams = 0;
    for (uint32_t stream = 0; stream < queue->streams; stream++) {
        if (queue->device[stream] != device || queue->submitted[stream] == 0)
            continue;
        sg_ledger_clock_join(ret, &queue->after[stream]);
        ledger_clock_raise(ret, stream, queue->submitted[stream]);
    }
}

void sg_lag_queue_wait(struct sg_lag_queue *queue, uint32_t stream, const struct sg_ledger_clock *clock)
{
    sg_ledger_clock_join(&queue->after[stream], clock);
}

bool sg_lag_queue_is_complete(const struct sg_lag_queue *queue, const struct sg_ledger_clock *clock)
{
    for (uint32_t i = 0; i < clock->streams; i++)
        if (queue->complete[i] < clock->at[i])
            return false;
    return true;
}

void sg_lag_queue_finish(struct sg_lag_queue *queue, const struct sg_ledger_clock *clock)
{
    for (uint32_t i = 0; i < clock->streams; i++)
        if (queue->complete[i] < clock->at[i])
            queue->complete[i] = clock->at[i];
}
