#include "core/state/outside_bytes.h"

#include "core/state/locks.h"
#include "core/state/trace_streams.h"

void sg_device_note_outside_locked(struct sg_device *device, uint64_t bytes)
{
    SG_ASSERT_HELD(&device->lock);
    bytes = bytes < device->total_bytes ? bytes : device->total_bytes;
    if (bytes == device->room.outside_bytes)
        return;
    device->room.outside_bytes = bytes;
    device->room.refused_at = 0;
    sg_emit(device, SEGALLOC_RECORD_PRESSURE, 0, sg_device_stream_locked(device, &(struct sg_tag){0}), 0, bytes);
}

/* Managed memory is known by what was asked for. How much of that is on the device nobody says: at most what is not known
   to be anything else. */
static void outside_divide(struct sg_outside *known, uint64_t bytes)
{
    uint64_t managed = known->bytes[SEGALLOC_OUTSIDE_MANAGED];
    uint64_t named = sg_outside_sum(known) - managed, rest = bytes > named ? bytes - named : 0;
    known->bytes[SEGALLOC_OUTSIDE_MANAGED] = managed < rest ? managed : rest;
    known->bytes[SEGALLOC_OUTSIDE_OTHER] = rest - known->bytes[SEGALLOC_OUTSIDE_MANAGED];
}

static void outside_emit_locked(struct sg_device *device, const struct sg_outside *outside) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    int last = SEGALLOC_OUTSIDE_COUNT - 1;
    while (last >= 0 && outside->bytes[last] == device->room.outside.bytes[last])
        last--;
    for (int i = 0; i <= last; i++)
        if (outside->bytes[i] != device->room.outside.bytes[i])
            sg_emit(device, SEGALLOC_RECORD_OUTSIDE, i == last ? SEGALLOC_FLAG_LAST : 0,
                sg_device_unknown_stream(device), (uint64_t)i, outside->bytes[i]);
    device->room.outside = *outside;
}

/* Whose question it is how much others hold. */
enum outside_purpose {
    OUTSIDE_TO_SHOW, /* the observer's alone */
    OUTSIDE_TO_PLAN, /* plans go by the answer as well */
};

/* `used`: of the device, by anybody. `passed`: of graphs besides, for a moment that is over. Nobody's observing may change
   a plan: a program that is traced decides as it does without, or a rehearsal would be of another program. */
static void outside_note(struct sg_device *device, struct sg_outside *known, uint64_t passed, uint64_t used,
    bool listens, enum outside_purpose purpose)
{
    uint64_t step = device->total_bytes / SG_PRESSURE_STEPS;
    sg_device_lock(device);
    uint64_t held = device->accounts.usage.reserved.now, bytes = used > held ? used - held : 0;
    if (purpose == OUTSIDE_TO_PLAN)
        sg_device_note_outside_locked(device, bytes / step * step);
    if (listens) {
        outside_divide(known, bytes);
        struct sg_outside then = *known;
        then.bytes[SEGALLOC_OUTSIDE_GRAPHS] += passed;
        outside_emit_locked(device, &then);
        outside_emit_locked(device, known);
    }
    sg_device_unlock(device);
}

static void outside_ask_growing(struct sg_device *device, enum outside_purpose purpose) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    const struct sg_core *core = device->core;
    bool listens = core->observer.emit && !core->replay;
    struct sg_outside known = {{0}};
    uint64_t total = device->total_bytes, used, passed = 0;
    if (listens && core->callbacks.outside)
        core->callbacks.outside(device->ordinal, &known, &passed);
    if (sg_driver_used_memory(sg_core_driver(core), device->ordinal, total, total / SG_TOTALS_ALIKE, &used))
        outside_note(device, &known, passed, used, listens, purpose);
}

void sg_device_ask_outside_growing(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->growth.grow);
    outside_ask_growing(device, OUTSIDE_TO_PLAN);
}

void sg_device_show_outside_growing(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->growth.grow);
    outside_ask_growing(device, OUTSIDE_TO_SHOW);
}
