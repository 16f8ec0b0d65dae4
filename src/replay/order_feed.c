#include "order_feed.h"

#include <assert.h>
#include <stdlib.h>

#include "apply.h"

bool sg_order_feed_init(struct sg_order_feed *feed, struct sg_core *core)
{
    *feed = (struct sg_order_feed){.core = core};
    return sg_idmap_init(&feed->absent);
}

void sg_order_feed_fini(struct sg_order_feed *feed)
{
    sg_idmap_fini(&feed->absent);
    free(feed->slot);
}

sg_slot sg_order_feed_slot(const struct sg_order_feed *feed, uint32_t stream)
{
    return stream < feed->streams ? feed->slot[stream] : 0;
}

bool sg_order_feed_skip(struct sg_order_feed *feed, uint64_t id)
{
    return sg_idmap_put(&feed->absent, id, 1);
}

void sg_order_feed_done(struct sg_order_feed *feed, int device, uint64_t id)
{
    if (!sg_idmap_take(&feed->absent, id))
        sg_core_apply(feed->core, device, &(struct segalloc_trace_record){.kind = SEGALLOC_RECORD_DONE});
}

/* Follows a stream. Each gets a key of its own: a later stream of the same index is another one. False: no host memory. */
static bool order_feed_follow(struct sg_order_feed *feed, int device, uint32_t stream, uint64_t flags)
{
    assert(stream < SEGALLOC_TRACE_STREAMS); /* the reader refuses others */
    if (stream >= feed->streams) {
        uint32_t streams = stream + 64;
        sg_slot *larger = realloc(feed->slot, streams * sizeof *larger);
        if (!larger)
            return false;
        for (uint32_t i = feed->streams; i < streams; i++)
            larger[i] = 0;
        feed->slot = larger;
        feed->streams = streams;
    }
    const struct sg_stream_id id = {.key = ++feed->key, .flags = (unsigned)flags};
    feed->slot[stream] = sg_core_slot(feed->core, device, &id);
    return true;
}

bool sg_order_feed_order(struct sg_order_feed *feed, int device, const struct segalloc_trace_record *record)
{
    struct sg_vector_clock clock = {0};
    sg_slot slot = (sg_slot)(record->id % SG_SLOTS);
    switch (record->kind) {
    case SEGALLOC_RECORD_SLOT:
        return order_feed_follow(feed, device, record->stream, record->size);
    case SEGALLOC_RECORD_SLOT_GONE:
        sg_core_slot_gone(feed->core, device, slot);
        return true;
    case SEGALLOC_RECORD_TICK: /* work on these slots; then the time goes on, by the clock that is read here */
        for (uint64_t left = record->id; left; left &= left - 1)
            sg_core_slot_submitted(feed->core, device, (sg_slot)__builtin_ctzll(left));
        sg_core_context_clock(feed->core, device, NULL, &clock);
        return true;
    case SEGALLOC_RECORD_ORDER:
        clock.at[slot] = record->size;
        sg_core_ordered_after(feed->core, device, sg_order_feed_slot(feed, record->stream), &clock);
        return true;
    case SEGALLOC_RECORD_COMPLETE:
        clock.at[slot] = record->size;
        sg_core_completed(feed->core, device, &clock);
        return true;
    case SEGALLOC_RECORD_MARK:
        sg_core_apply(feed->core, device, record);
        return true;
    default:
        return true;
    }
}
