#include "core/state/outside_bytes.h"

#include "core/state/locks.h"
#include "core/state/trace_streams.h"

void sg_device_note_outside_locked(struct sg_device *device, uint64_t bytes)
{
    SG_ASSERT_HELD(&device->lock);
    bytes = bytes < device->total_bytes ? bytes : device->total_bytes;
    device->room.outside_exact = bytes;
    if (bytes == device->room.outside_bytes)
        return;
    device->room.outside_bytes = bytes;
    device->room.refused_at = 0;
    sg_emit(device, SEGALLOC_RECORD_PRESSURE, 0, sg_device_stream_locked(device, &(struct sg_tag){0}), 0, bytes);
}

/* Divides `bytes`, all that is outside, among the categories. Managed memory is known by what was asked for, and
   nobody says how much of it is on the device. So it counts with at most the bytes that no other category has. The
   rest is OTHER. */
static void outside_divide(struct sg_outside *known, uint64_t bytes)
{
    uint64_t managed = known->bytes[SEGALLOC_OUTSIDE_MANAGED];
    uint64_t named = sg_outside_sum(known) - managed, rest = bytes > named ? bytes - named : 0;
    known->bytes[SEGALLOC_OUTSIDE_MANAGED] = managed < rest ? managed : rest;
    known->bytes[SEGALLOC_OUTSIDE_OTHER] = rest - known->bytes[SEGALLOC_OUTSIDE_MANAGED];
}

/* Emits a record for each category that changed since `before`, which is brought up to date. The last one is flagged,
   so that a reader knows when all have their new values. */
static void outside_emit(const struct sg_core *core, int ordinal, const struct sg_outside *now,
    struct sg_outside *before)
{
    int last = SEGALLOC_OUTSIDE_COUNT - 1;
    while (last >= 0 && now->bytes[last] == before->bytes[last])
        last--;
    for (int i = 0; i <= last; i++)
        if (now->bytes[i] != before->bytes[i])
            sg_event_emit(&core->observer, SEGALLOC_RECORD_OUTSIDE, i == last ? SEGALLOC_FLAG_LAST : 0,
                sg_unknown_stream_of(ordinal), (uint64_t)i, now->bytes[i]);
    *before = *now;
}

/* The purpose of asking how much is outside. */
enum outside_purpose {
    OUTSIDE_TO_SHOW, /* the observer's alone */
    OUTSIDE_TO_PLAN, /* plans go by the answer as well */
};

/* The driver's answer, and the layer above's, for one moment. */
struct outside_answer {
    struct sg_outside known, most; /* by calls of this process; `most`: at a moment that is over, all zeros: at none */
    uint64_t used;                 /* bytes of the device, by anybody */
    bool has_used;                 /* `used` is known: only a context of the device can say */
};

/* True if anybody observes: a trace does, a replay does not. */
static bool outside_is_observed(const struct sg_core *core)
{
    return core->observer.emit && !core->replay;
}

/* Asks for both answers. The layer above is asked only where somebody observes: plans need the driver's alone. */
static struct outside_answer outside_ask(const struct sg_core *core, int ordinal, uint64_t total, bool current)
{
    struct outside_answer answer = {.used = 0};
    if (outside_is_observed(core) && core->callbacks.outside)
        core->callbacks.outside(ordinal, &answer.known, &answer.most);
    answer.has_used =
        current && sg_driver_used_memory(sg_core_driver(core), ordinal, total, total / SG_TOTALS_ALIKE, &answer.used);
    return answer;
}

/* Shows an answer to the observer. `ours` is held by the core. Where nobody says how much is used, the categories
   without a name stay as they were. If this process held more at a moment that is over, that moment is shown first,
   so that a peak is not lost. */
static void outside_show(const struct sg_core *core, int ordinal, uint64_t ours, struct outside_answer *answer,
    struct sg_outside *before)
{
    enum segalloc_outside unnamed[] = {SEGALLOC_OUTSIDE_OTHER, SEGALLOC_OUTSIDE_MANAGED};
    struct sg_outside *known = &answer->known, *most = &answer->most;
    if (answer->has_used)
        outside_divide(known, answer->used > ours ? answer->used - ours : 0);
    for (int i = 0; i < 2; i++) {
        if (!answer->has_used)
            known->bytes[unnamed[i]] = before->bytes[unnamed[i]];
        most->bytes[unnamed[i]] = known->bytes[unnamed[i]];
    }
    if (sg_outside_stays(most) > sg_outside_stays(known))
        outside_emit(core, ordinal, most, before);
    outside_emit(core, ordinal, known, before);
}

/* Asks and notes, for plans or for the observer alone. Observing never changes a plan: a traced program must decide
   as it does without a trace, or a rehearsal would be of another program. */
static void outside_ask_growing(struct sg_device *device, bool current, enum outside_purpose purpose) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint64_t step = device->total_bytes / SG_PRESSURE_STEPS;
    struct outside_answer answer = outside_ask(device->core, device->ordinal, device->total_bytes, current);
    sg_device_lock(device);
    uint64_t held = sg_device_held_locked(device), bytes = answer.used > held ? answer.used - held : 0;
    if (purpose == OUTSIDE_TO_PLAN && answer.has_used)
        sg_device_note_outside_locked(device, bytes / step * step);
    if (answer.has_used)
        device->room.outside_exact = bytes < device->total_bytes ? bytes : device->total_bytes;
    if (outside_is_observed(device->core))
        outside_show(device->core, device->ordinal, held, &answer, &device->room.outside);
    sg_device_unlock(device);
}

void sg_device_ask_outside_growing(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->growth.grow);
    outside_ask_growing(device, /* current */ true, OUTSIDE_TO_PLAN);
}

void sg_device_show_outside_growing(struct sg_device *device, bool current)
{
    SG_ASSERT_HELD(&device->growth.grow);
    outside_ask_growing(device, current, OUTSIDE_TO_SHOW);
}

/* The device is not made ready by this, since it would then serve differently with a trace than without. The trace
   defines it without pages, and the record of its start adds them. */
SG_UNCHECKED_LOCKS void sg_core_show_outside_in_setup(struct sg_core *core, int ordinal, bool current)
{
    SG_ASSERT_HELD(&core->setup);
    struct sg_unready *unready = &core->unready[ordinal];
    size_t total = 0;
    if (!unready->total_bytes) {
        if (sg_core_driver(core)->device_total(&total, ordinal) != CUDA_SUCCESS || !total ||
            total > SEGALLOC_TRACE_DEVICE_MOST)
            return;
        unready->total_bytes = total;
        sg_event_emit(&core->observer, SEGALLOC_RECORD_DEFINE_DEVICE, 0, (uint32_t)ordinal, 0, total);
        if (ordinal > 0)
            sg_event_emit(&core->observer, SEGALLOC_RECORD_DEFINE_STREAM, 0, sg_unknown_stream_of(ordinal), 0,
                (uint64_t)ordinal);
    }
    struct outside_answer answer = outside_ask(core, ordinal, unready->total_bytes, current);
    outside_show(core, ordinal, 0, &answer, &unready->outside);
}
