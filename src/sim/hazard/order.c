#include "hazard/order.h"

#include <stdlib.h>
#include <string.h>

#include "device/context.h"
#include "streams/stream.h"
#include "streams/work.h"

static struct sim_clock host;

static struct slot {
    bool taken;
    uint64_t last; /* position of the stream that had it last */
} *slots;

static unsigned slot_count;

static bool clock_grow(struct sim_clock *clock, unsigned count)
{
    if (count <= clock->count)
        return true;
    uint64_t *grown = realloc(clock->at, count * sizeof *grown);
    if (!grown)
        return false;
    memset(grown + clock->count, 0, (count - clock->count) * sizeof *grown);
    clock->at = grown;
    clock->count = count;
    return true;
}

void sim_clock_join(struct sim_clock *into, const struct sim_clock *from)
{
    if (!clock_grow(into, from->count))
        return;
    for (unsigned i = 0; i < from->count; i++) {
        if (into->at[i] < from->at[i])
            into->at[i] = from->at[i];
    }
}

void sim_clock_clear(struct sim_clock *clock)
{
    free(clock->at);
    *clock = (struct sim_clock){0};
}

/* A slot may be taken again once the host knows all its work to be complete: then whatever comes after the host comes
   after that work, and whoever trusts the new stream's positions errs about nothing. */
void sim_order_stream_new(CUstream stream)
{
    if (!sim.config.hazard || stream->kind == SIM_STREAM_MARKER)
        return;
    unsigned at = 0;
    while (at < slot_count && (slots[at].taken || !sim_clock_covers(&host, (struct sim_point){at, slots[at].last})))
        at++;
    if (at == slot_count) {
        struct slot *grown = realloc(slots, (slot_count + 1) * sizeof *grown);
        if (!grown)
            return;
        slots = grown;
        slots[slot_count++] = (struct slot){.last = 1}; /* so that position 0 means "after nothing" */
    }
    slots[at].taken = true;
    stream->slot = at;
    stream->slot_base = slots[at].last;
    stream->has_slot = true;
}

void sim_order_stream_end(CUstream stream)
{
    if (stream->has_slot) {
        slots[stream->slot].taken = false;
        slots[stream->slot].last = stream->slot_base + stream->submitted;
    }
    sim_clock_clear(&stream->clock);
}

struct sim_point sim_order_point(CUstream stream, uint64_t position)
{
    return (struct sim_point){stream->slot, stream->slot_base + position};
}

static bool stream_is_blocking(const struct CUstream_st *stream)
{
    return stream->kind != SIM_STREAM_MARKER && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

void sim_order_stream_closed(CUstream stream)
{
    if (!stream->has_slot)
        return;
    sim_clock_join(&stream->context->gone_clock, &stream->clock);
    if (stream_is_blocking(stream) && stream->kind != SIM_STREAM_LEGACY && stream->context->legacy)
        sim_clock_join(&stream->context->legacy->clock, &stream->clock);
}

void sim_order_submitted(CUstream stream, struct sim_work *work)
{
    if (!stream->has_slot)
        return;
    CUcontext context = stream->context;
    struct sim_clock *clock = &stream->clock;
    sim_clock_join(clock, &host);
    sim_clock_join(clock, &work->after);
    if (stream->kind != SIM_STREAM_MARKER)
        sim_clock_join(clock, &context->barrier_clock);
    if (stream->kind == SIM_STREAM_LEGACY) {
        for (CUstream s = context->streams; s; s = s->next) {
            if (s != stream && stream_is_blocking(s))
                sim_clock_join(clock, &s->clock);
        }
    } else if (stream_is_blocking(stream) && context->legacy) {
        sim_clock_join(clock, &context->legacy->clock);
    }
    if (clock_grow(clock, stream->slot + 1))
        clock->at[stream->slot] = stream->slot_base + work->position;
    if (work->host_sees || work->keeps_clock) {
        sim_clock_clear(&work->after);
        sim_clock_join(&work->after, clock);
    }
}

void sim_order_stream(CUstream stream, struct sim_clock *ret)
{
    if (!stream->has_slot)
        return;
    sim_clock_join(ret, &stream->clock);
    for (CUstream s = stream->context->streams; s && stream->kind == SIM_STREAM_LEGACY; s = s->next) {
        if (stream_is_blocking(s))
            sim_clock_join(ret, &s->clock);
    }
}

void sim_order_context(CUcontext context, struct sim_clock *ret)
{
    for (CUcontext c = sim.contexts; c; c = c->next) {
        if (!sim_context_covers(context, c))
            continue;
        sim_clock_join(ret, &c->gone_clock);
        for (CUstream s = c->streams; s; s = s->next)
            sim_clock_join(ret, &s->clock);
    }
}

void sim_order_stream_after(CUstream stream, const struct sim_clock *clock)
{
    if (stream->has_slot)
        sim_clock_join(&stream->clock, clock);
}

void sim_order_context_after(CUcontext context, const struct sim_clock *clock)
{
    for (CUcontext c = sim.config.hazard ? sim.contexts : NULL; c; c = c->next) {
        if (sim_context_covers(context, c))
            sim_clock_join(&c->barrier_clock, clock);
    }
}

void sim_order_host_after(const struct sim_clock *clock)
{
    if (sim.config.hazard)
        sim_clock_join(&host, clock);
}

const struct sim_clock *sim_order_host(void)
{
    return &host;
}
