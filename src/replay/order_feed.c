#include "order_feed.h"

#include <assert.h>
#include <stdlib.h>

#include "apply.h"

bool sg_order_feed_init(struct sg_order_feed *told, struct sg_core *core)
{
    *told = (struct sg_order_feed){.core = core};
    return sg_idmap_init(&told->absent);
}

void sg_order_feed_fini(struct sg_order_feed *told)
{
    sg_idmap_fini(&told->absent);
    free(told->slot);
}

sg_slot sg_order_feed_slot(const struct sg_order_feed *told, uint32_t stream)
{
    return stream < told->streams ? told->slot[stream] : 0;
}

bool sg_order_feed_skip(struct sg_order_feed *told, uint64_t id)
{
    return sg_idmap_put(&told->absent, id, 1);
}

void sg_order_feed_done(struct sg_order_feed *told, int device, uint64_t id)
{
    if (!sg_idmap_take(&told->absent, id))
        sg_core_apply(told->core, device, &(struct segalloc_trace_record){.kind = SEGALLOC_RECORD_DONE});
}

static bool follow(struct sg_order_feed *told, int device, uint32_t stream, uint64_t flags)
{
    assert(stream < SEGALLOC_TRACE_STREAMS); /* the reader refuses others */
    if (stream >= told->streams) {
        uint32_t streams = stream + 64;
        sg_slot *larger = realloc(told->slot, streams * sizeof *larger);
        if (!larger)
            return false;
        for (uint32_t i = told->streams; i < streams; i++)
            larger[i] = 0;
        told->slot = larger;
        told->streams = streams;
    }
    const struct sg_stream_id id = {.key = ++told->key, .flags = (unsigned)flags};
    told->slot[stream] = sg_core_slot(told->core, device, &id);
    return true;
}

bool sg_order_feed_order(struct sg_order_feed *told, int device, const struct segalloc_trace_record *record)
{
    struct sg_vector_clock clock = {0};
    sg_slot slot = (sg_slot)(record->id % SG_SLOTS);
    switch (record->kind) {
    case SEGALLOC_RECORD_SLOT:
        return follow(told, device, record->stream, record->size);
    case SEGALLOC_RECORD_SLOT_GONE:
        sg_core_slot_gone(told->core, device, slot);
        return true;
    case SEGALLOC_RECORD_TICK:
        for (uint64_t left = record->id; left; left &= left - 1)
            sg_core_slot_submitted(told->core, device, (sg_slot)__builtin_ctzll(left));
        sg_core_context_clock(told->core, device, NULL, &clock);
        return true;
    case SEGALLOC_RECORD_ORDER:
        clock.at[slot] = record->size;
        sg_core_ordered_after(told->core, device, sg_order_feed_slot(told, record->stream), &clock);
        return true;
    case SEGALLOC_RECORD_COMPLETE:
        clock.at[slot] = record->size;
        sg_core_completed(told->core, device, &clock);
        return true;
    case SEGALLOC_RECORD_MARK:
        sg_core_apply(told->core, device, record);
        return true;
    default:
        return true;
    }
}
