/* What is known about the order of streams: slots, clocks, and what was learnt from waits and completions. */
#include "order.h"

#include <string.h>

#include "device.h"

static uint64_t bit(sg_slot slot)
{
    return UINT64_C(1) << slot;
}

static struct sg_device *followed(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = ordinal >= 0 && ordinal < SG_DEVICES_MAX ? atomic_load_explicit(&core->device[ordinal], memory_order_acquire) : NULL;
    return device && slot && slot < SG_SLOTS ? device : NULL;
}

/* A slot whose stream is gone serves another one as soon as all its work is complete. */
static void retire(struct sg_device *device, sg_slot slot)
{
    struct sg_order *order = &device->order;
    if (order->state[slot] == SG_SLOT_GONE && order->complete[slot] >= order->gone_at[slot]) {
        order->state[slot] = SG_SLOT_UNUSED;
        order->alive &= ~bit(slot);
        order->owed &= ~bit(slot);
        order->complete[slot] = UINT64_MAX; /* until it has a stream again */
    }
}

static sg_slot find(const struct sg_order *order, uint64_t key)
{
    for (uint64_t left = order->alive; left; left &= left - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(left);
        if (order->stream[slot].key == key && order->state[slot] == SG_SLOT_ALIVE)
            return slot;
    }
    return 0;
}

static void follow(struct sg_device *device, sg_slot slot, const struct sg_stream_id *id)
{
    struct sg_order *order = &device->order;
    uint32_t index = sg_device_slot_stream(device, slot);
    order->stream[slot] = *id;
    order->state[slot] = SG_SLOT_ALIVE;
    order->complete[slot] = device->serial; /* what its last stream was given is */
    order->met_at[slot] = device->serial;
    memset(&order->knows[slot], 0, sizeof order->knows[slot]);
    order->alive |= bit(slot);
    order->unseen |= bit(slot);
    order->unproven &= ~bit(slot);
    atomic_fetch_and_explicit(&order->fresh, ~bit(slot), memory_order_relaxed);
    order->opaque = id->flags & SG_STREAM_OPAQUE || id->per_thread ? order->opaque | bit(slot) : order->opaque & ~bit(slot);
    order->blocking = id->flags & (SG_STREAM_BLOCKING | SG_STREAM_LEGACY) ? order->blocking | bit(slot) : order->blocking & ~bit(slot);
    sg_emit(device, SEGALLOC_RECORD_DEFINE_STREAM, 0, index, (uint64_t)(uintptr_t)id->handle, (uint64_t)device->ordinal);
    sg_emit(device, SEGALLOC_RECORD_SLOT, 0, index, slot, id->flags);
}

sg_slot sg_core_slot(struct sg_core *core, int ordinal, const struct sg_stream_id *id)
{
    struct sg_device *device = sg_device_get(core, ordinal);
    if (!device || device->mode != SG_MODE_EXPANDABLE)
        return 0;
    sg_lock(&device->lock);
    struct sg_order *order = &device->order;
    sg_slot slot = find(order, id->key);
    uint64_t unused = ~order->alive & ~bit(0);
    if (!slot && unused) {
        slot = (sg_slot)__builtin_ctzll(unused);
        follow(device, slot, id);
    }
    sg_unlock(&device->lock);
    return slot;
}

void sg_order_gone(struct sg_device *device, sg_slot slot)
{
    struct sg_order *order = &device->order;
    order->state[slot] = SG_SLOT_GONE;
    order->gone_at[slot] = sg_order_read(device, bit(slot)); /* later than all that it was given */
    sg_emit(device, SEGALLOC_RECORD_SLOT_GONE, 0, sg_device_slot_stream(device, slot), slot, 0);
    retire(device, slot);
}

void sg_core_slot_opaque(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = followed(core, ordinal, slot);
    if (!device)
        return;
    sg_lock(&device->lock);
    device->order.opaque |= bit(slot);
    sg_unlock(&device->lock);
}

void sg_core_slot_touched(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = followed(core, ordinal, slot);
    if (device && !(atomic_load_explicit(&device->order.fresh, memory_order_relaxed) & bit(slot)))
        atomic_fetch_or_explicit(&device->order.fresh, bit(slot), memory_order_release);
}

uint64_t sg_order_read(struct sg_device *device, uint64_t slots)
{
    struct sg_order *order = &device->order;
    uint64_t fresh = atomic_load_explicit(&order->fresh, memory_order_acquire) & slots;
    if (fresh) { /* what they are given from here on is later than this */
        atomic_fetch_and_explicit(&order->fresh, ~fresh, memory_order_acquire);
        uint64_t now = sg_order_tick(device);
        order->unproven |= fresh;
        for (; fresh; fresh &= fresh - 1)
            order->folded[__builtin_ctzll(fresh)] = now;
        sg_emit(device, SEGALLOC_RECORD_TICK, 0, sg_device_unknown_stream(device), 0, now);
    }
    return device->serial;
}

void sg_core_clock(struct sg_core *core, int ordinal, sg_slot slot, struct sg_clock *ret)
{
    struct sg_device *device = followed(core, ordinal, slot);
    if (!device) {
        memset(ret, 0, sizeof *ret);
        return;
    }
    sg_lock(&device->lock);
    struct sg_order *order = &device->order;
    uint64_t now = sg_order_read(device, bit(slot));
    order->unseen &= ~bit(slot);
    *ret = order->knows[slot];
    ret->at[slot] = now;
    sg_unlock(&device->lock);
}

uint64_t sg_order_slots_of(const struct sg_order *order, CUcontext context)
{
    uint64_t slots = 0;
    for (uint64_t left = order->alive; left; left &= left - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(left);
        if (!context || order->stream[slot].context == context)
            slots |= bit(slot);
    }
    return slots;
}

void sg_core_context_clock(struct sg_core *core, int ordinal, CUcontext context, struct sg_clock *ret)
{
    struct sg_device *device = ordinal >= 0 && ordinal < SG_DEVICES_MAX ? atomic_load_explicit(&core->device[ordinal], memory_order_acquire) : NULL;
    memset(ret, 0, sizeof *ret);
    if (!device)
        return;
    bool only = !context || sg_core_is_only_context(core, context);
    sg_lock(&device->lock);
    uint64_t slots = sg_order_slots_of(&device->order, context), now = sg_order_read(device, slots);
    for (uint64_t left = slots; left; left &= left - 1)
        ret->at[__builtin_ctzll(left)] = now;
    ret->at[0] = only ? now : 0;
    sg_unlock(&device->lock);
}

void sg_core_waited(struct sg_core *core, int ordinal, sg_slot slot, const struct sg_clock *clock)
{
    struct sg_device *device = followed(core, ordinal, slot);
    if (!device)
        return;
    sg_lock(&device->lock);
    struct sg_order *order = &device->order;
    order->unseen &= ~bit(slot);
    for (sg_slot other = 1; other < SG_SLOTS; other++) {
        if (other == slot || clock->at[other] <= order->knows[slot].at[other] || clock->at[other] <= order->complete[other])
            continue;
        order->knows[slot].at[other] = clock->at[other];
        order->version++;
        sg_order_tick(device); /* who comes after the stream's work so far has not come after this */
        sg_emit(device, SEGALLOC_RECORD_ORDER, 0, sg_device_slot_stream(device, slot), other, clock->at[other]);
    }
    sg_unlock(&device->lock);
}

void sg_order_marked(struct sg_device *device, uint64_t slots, uint64_t time)
{
    struct sg_order *order = &device->order;
    for (uint64_t left = slots; left; left &= left - 1)
        order->marked[__builtin_ctzll(left)] = time;
    sg_emit(device, SEGALLOC_RECORD_MARK, 0, sg_device_unknown_stream(device), slots, time);
}

void sg_core_marked(struct sg_core *core, int ordinal, uint64_t slots, uint64_t time)
{
    struct sg_device *device = ordinal >= 0 && ordinal < SG_DEVICES_MAX ? atomic_load_explicit(&core->device[ordinal], memory_order_acquire) : NULL;
    if (!device)
        return;
    sg_lock(&device->lock);
    sg_order_marked(device, slots, time);
    sg_unlock(&device->lock);
}

void sg_order_complete(struct sg_device *device, sg_slot slot, uint64_t time)
{
    struct sg_order *order = &device->order;
    if (time <= order->complete[slot])
        return;
    order->complete[slot] = time;
    order->version++;
    if (time >= order->folded[slot])
        order->unproven &= ~bit(slot);
    sg_emit(device, SEGALLOC_RECORD_COMPLETE, 0, sg_device_unknown_stream(device), slot, time);
    retire(device, slot);
}

void sg_core_completed(struct sg_core *core, int ordinal, const struct sg_clock *clock)
{
    struct sg_device *device = ordinal >= 0 && ordinal < SG_DEVICES_MAX ? atomic_load_explicit(&core->device[ordinal], memory_order_acquire) : NULL;
    if (!device)
        return;
    sg_lock(&device->lock);
    for (sg_slot slot = 0; slot < SG_SLOTS; slot++)
        if (clock->at[slot])
            sg_pending_complete(device, bit(slot), clock->at[slot]);
    sg_unlock(&device->lock);
}

/* Whether `slot` has come after all that `other` was given so far. `fresh`: bits of those given work since their clock was read. */
static bool has_come_after(const struct sg_order *order, sg_slot slot, unsigned other, uint64_t fresh)
{
    return !(fresh >> other & 1) && order->knows[slot].at[other] >= order->folded[other];
}

/* The bits of those who may still be at work on a block of `slot` that was allocated at `born`, so that its end has to wait for
   them: they have work left that `slot` has not come after, and have either come after the block's allocation, or may have in a
   way that is not seen. */
uint64_t sg_order_could_have_seen(struct sg_device *device, sg_slot slot, uint64_t born)
{
    const struct sg_order *order = &device->order;
    uint64_t fresh = atomic_load_explicit(&order->fresh, memory_order_acquire);
    uint64_t busy = (fresh | order->unproven) & order->alive & ~bit(slot), seen = 0, known = 0;
    if (order->opaque & bit(slot) || order->complete[slot] >= born)
        seen = busy; /* the host may have passed it on by any means */
    else
        known = order->opaque | order->unseen | (order->blocking & bit(slot) ? order->blocking : 0);
    for (uint64_t left = busy; left; left &= left - 1) {
        unsigned other = (unsigned)__builtin_ctzll(left);
        if (known >> other & 1 || order->knows[other].at[slot] >= born)
            seen |= bit(other);
        if (has_come_after(order, slot, other, fresh))
            seen &= ~bit(other);
    }
    return seen;
}
