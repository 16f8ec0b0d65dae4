/* Streams, their events, and contexts. */
#include "play.h"

int play_some_context(int device)
{
    int current = books_current();
    if (play.context[current].alive && play.context[current].device == device)
        return current;
    for (int i = 0; i < FUZZ_CONTEXTS; i++)
        if (play.context[i].alive && play.context[i].device == device)
            return i;
    return -1;
}

void play_meet_stream(int i, enum fuzz_nature nature, int context)
{
    static const unsigned flags[FUZZ_NATURES] = {
        [FUZZ_OPAQUE] = SG_STREAM_UNTRACKED_ORDER, [FUZZ_BLOCKING] = SG_STREAM_BLOCKING,
        [FUZZ_LEGACY] = SG_STREAM_LEGACY};
    const struct sg_stream_id id = {.key = (uint64_t)i + 1, .context = play_context_handle(context),
        .handle = play_stream_handle(i), .per_thread = nature == FUZZ_OWN, .flags = flags[nature]};
    play_make_current(context);
    work_meet(i, nature, (uint8_t)context);
    play.slot[i] = sg_core_slot(play.core, play.context[context].device, &id);
    play_digest(play.slot[i]);
}

void play_meet_context(int i, int device)
{
    play.context[i].alive = true;
    play.context[i].device = (int8_t)device;
    if (play.setup->contexts)
        sg_core_context_seen(play.core, device, play_context_handle(i));
}

static void touch(unsigned stream)
{
    if (play.slot[stream])
        sg_core_slot_submitted(play.core, play_device_of(stream), play.slot[stream]);
}

void play_submit(unsigned stream, struct play_block *block, bool told)
{
    work_submit((int)stream, block ? &block->touched : NULL);
    if (told)
        touch(stream);
}

void play_record(struct play_event *event, unsigned stream)
{
    work_come_after_by_rules((int)stream);
    sg_core_clock(play.core, play_device_of(stream), play.slot[stream], &event->clock);
    event->after = work_up_to((int)stream);
    event->device = (int8_t)play_device_of(stream);
    event->recorded = true;
}

static void know(const struct play_event *event, bool indirect)
{
    work_join(&play.host, &event->after);
    if (indirect && play.setup->sees_possible) /* by means of which the core knows only that they were there */
        sg_core_host_observed(play.core, event->device, indirect ? &event->clock : NULL);
    else
        sg_core_completed(play.core, event->device, &event->clock);
}

void play_follow(const struct play_event *event, unsigned stream)
{
    work_come_after_by_rules((int)stream);
    work_come_after((int)stream, &event->after);
    sg_core_ordered_after(play.core, play_device_of(stream), play.slot[stream], &event->clock);
}

void play_work(const struct fuzz_op *op)
{
    if (!play_is_alive(op->stream))
        return;
    play.done++;
    play_submit(op->stream, NULL, !(play.setup->missed_calls && op->flags & FUZZ_UNNAMED));
}

void play_event_op(const struct fuzz_op *op)
{
    struct play_event *event = &play.event[op->other % FUZZ_EVENTS];
    bool of_stream = play_is_alive(op->stream) && play_is_told(op->stream);
    if (op->kind == FUZZ_RECORD && of_stream)
        play_record(event, op->stream);
    if (op->kind == FUZZ_WAIT && of_stream && event->recorded && event->device == play_device_of(op->stream))
        play_follow(event, op->stream);
    if (op->kind == FUZZ_EVENT_SYNC && event->recorded)
        work_finish(&event->after);
    if (op->kind >= FUZZ_EVENT_QUERY && event->recorded && work_is_complete(&event->after))
        know(event, op->flags & FUZZ_INDIRECT);
    play.done++;
}

/* What the host learns of a stream that has no work left. */
void play_stream_idle(const struct fuzz_op *op)
{
    struct sg_vector_clock told;
    uint64_t done;
    if (!play_is_alive(op->stream) || !play_is_told(op->stream) || !play.slot[op->stream])
        return;
    int device = play_device_of(op->stream);
    struct work_after own = work.stream[op->stream].after; /* of what the next piece comes after by rules it says
                                                              nothing */
    own.work[op->stream] = work.stream[op->stream].works;
    if (work.stream[op->stream].nature == FUZZ_LEGACY) /* it tells of the blocking ones too */
        own = work_up_to(op->stream);
    sg_core_idle_clock(play.core, device, play.slot[op->stream], &told, &done);
    if (op->kind == FUZZ_STREAM_SYNC)
        work_finish(&own);
    play.done++;
    if (!work_is_complete(&own))
        return;
    work_join(&play.host, &own);
    if (done < told.at[play.slot[op->stream]])
        sg_core_host_observed(play.core, device, &told);
    told.at[play.slot[op->stream]] = done;
    sg_core_completed(play.core, device, &told);
}

static void sync_context(int context)
{
    struct sg_vector_clock clock;
    int device = play.context[context].device;
    if (!play.context[context].alive)
        return;
    play_make_current(context);
    sg_core_context_clock(play.core, device, play_context_handle(context), &clock);
    if (play.setup->devices > 1)
        clock.at[0] = 0; /* what waits for all work waits for other devices' too */
    struct work_after all = work_of_context(context);
    work_finish(&all);
    work_join(&play.host, &all);
    sg_core_completed(play.core, device, &clock);
    play.done++;
}

void play_new_stream(const struct fuzz_op *op)
{
    if (op->stream >= FUZZ_STREAMS || work.stream[op->stream].met || op->bytes >= FUZZ_CONTEXTS ||
        !play.context[op->bytes].alive || op->other >= FUZZ_NATURES)
        return;
    for (uint32_t i = 0; op->other == FUZZ_LEGACY && i < work.streams; i++)
        if (work.stream[i].met && work.stream[i].nature == FUZZ_LEGACY && work.stream[i].context == op->bytes)
            return; /* a context has one */
    play_meet_stream(op->stream, op->other, (int)op->bytes);
    play.done++;
}

void play_end_stream(const struct fuzz_op *op)
{
    unsigned stream = op->stream;
    if (!play_is_alive(stream) || work.stream[stream].nature == FUZZ_LEGACY)
        return;
    play_make_current(work.stream[stream].context);
    sg_core_slot_gone(play.core, play_device_of(stream), play.slot[stream]);
    work.stream[stream].alive = false;
    play.done++;
}

/* Who destroys a context has waited for what others do with its memory. */
void play_end_context(const struct fuzz_op *op)
{
    int context = op->other, others = 0;
    for (int i = 0; i < FUZZ_CONTEXTS; i++)
        others += play.context[i].alive && i != context;
    if (context >= FUZZ_CONTEXTS || !play.context[context].alive || !others || !play.setup->contexts)
        return;
    struct work_after all = work_of_context(context);
    work_finish(&all);
    for (uint32_t i = 0; i < play.lives; i++)
        if (play.block[play.live[i]].context == context)
            work_finish(&play.block[play.live[i]].touched);
    sg_core_context_ending(play.core, play_context_handle(context), true);
    for (int i = 0; i < FUZZ_CONTEXTS; i++) /* one that stays is current */
        if (play.context[i].alive && i != context)
            play_make_current(i);
    for (uint32_t i = 0; i < work.streams; i++)
        if (work.stream[i].context == context)
            work.stream[i].alive = false;
    play.context[context].alive = false;
    for (uint32_t i = play.lives; i-- > 0;)
        if (play.block[play.live[i]].context == context)
            play_bury(&play.block[play.live[i]]);
    books_context_gone(context);
    sg_core_context_gone(play.core, play.context[context].device, play_context_handle(context));
    play.done++;
}

void play_progress(const struct fuzz_op *op)
{
    if (op->stream < FUZZ_STREAMS && work.stream[op->stream].met)
        work_progress(op->stream, op->bytes);
}

void play_sync_context(const struct fuzz_op *op)
{
    if (op->other < FUZZ_CONTEXTS)
        sync_context(op->other);
}

void play_new_context(const struct fuzz_op *op)
{
    if (op->other < FUZZ_CONTEXTS && play.setup->contexts && op->bytes < play.setup->devices &&
        !play.context[op->other].alive)
        play_meet_context(op->other, (int)op->bytes);
}

void play_use_context(const struct fuzz_op *op)
{
    if (op->other < FUZZ_CONTEXTS && play.context[op->other].alive)
        play_make_current(op->other);
}
