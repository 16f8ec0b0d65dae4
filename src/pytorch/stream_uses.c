/* Blocks that other streams may still use when they are freed. */
#include "stream_uses.h"

#include <stdlib.h>

#include "base/meta.h"
#include "cached_block.h"
#include "request_stream.h"

static struct torch_event *event_new(struct sg_torch *torch)
{
    struct torch_event *event = torch->spare_events;
    if (!event)
        return sg_meta_noted(malloc(sizeof *event));
    torch->spare_events = event->next;
    return event;
}

static void event_drop(struct sg_torch *torch, struct torch_event *event)
{
    event->next = torch->spare_events;
    torch->spare_events = event;
}

static void event_wait_for(struct sg_torch *torch, uint64_t event)
{
    if (torch->ops->event_wait)
        torch->ops->event_wait(torch->user, event);
}

void torch_events_defer(struct sg_torch *torch, struct sg_torch_block *block)
{
    block->state = TORCH_DEFERRED;
    for (uint32_t i = 0; i < block->uses->count; i++) {
        uint64_t id = block->uses->streams[i],
                 recorded = torch->ops->event_record ? torch->ops->event_record(torch->user, id) : 0;
        struct torch_stream *stream = torch_stream_of(torch, id);
        struct torch_event *event = stream ? event_new(torch) : NULL;
        if (!event) { /* no host memory to remember it by */
            event_wait_for(torch, recorded);
            continue;
        }
        *event = (struct torch_event){.block = block, .event = recorded};
        *stream->events_end = event;
        stream->events_end = &event->next;
        block->events++;
        torch->outstanding++;
    }
    free(block->uses);
    block->uses = NULL;
    if (block->events == 0)
        torch_block_freed(torch, block);
}

/* The oldest event of a stream is complete. The last event of a block frees it. */
static void stream_pop_event(struct sg_torch *torch, struct torch_stream *stream)
{
    struct torch_event *event = stream->events;
    struct sg_torch_block *block = event->block;
    stream->events = event->next;
    if (!stream->events)
        stream->events_end = &stream->events;
    event_drop(torch, event);
    torch->outstanding--;
    if (--block->events == 0)
        torch_block_freed(torch, block);
}

/* True if an event is complete; a card without events has none that is not. */
static bool event_is_complete(const struct sg_torch *torch, uint64_t event)
{
    return !torch->ops->event_done || torch->ops->event_done(torch->user, event);
}

void torch_events_poll(struct sg_torch *torch)
{
    if (torch->outstanding == 0)
        return;
    for (struct torch_stream *stream = torch->streams; stream; stream = stream->hh.next) {
        while (stream->events && event_is_complete(torch, stream->events->event))
            stream_pop_event(torch, stream);
    }
}

void torch_events_wait(struct sg_torch *torch)
{
    for (struct torch_stream *stream = torch->streams; stream && torch->outstanding; stream = stream->hh.next) {
        while (stream->events) {
            event_wait_for(torch, stream->events->event);
            stream_pop_event(torch, stream);
        }
    }
}

void torch_events_free(struct sg_torch *torch)
{
    for (struct torch_stream *stream = torch->streams; stream; stream = stream->hh.next) {
        while (stream->events) {
            struct torch_event *event = stream->events;
            stream->events = event->next;
            free(event);
        }
    }
    for (struct torch_event *event = torch->spare_events, *next; event; event = next) {
        next = event->next;
        free(event);
    }
}
