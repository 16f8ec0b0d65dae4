/* Each function finds the device and takes `lock` around one function of order/stream_clock.h. Those that add
   knowledge are called after the driver's success. A device that nobody has used yet knows no streams, so there is
   nothing to note for it. */
#include "core/streams/followed_streams.h"

#include <string.h>

#include "core/state/locks.h"
#include "core/streams/pending_frees.h"

/* The device, if it is known and the slot can be one; else NULL, and the call does nothing. */
static struct sg_device *device_tracking(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    return device && slot && slot < SG_SLOTS ? device : NULL;
}

void sg_core_slot_untracked_order(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = device_tracking(core, ordinal, slot);
    if (!device)
        return;
    sg_device_lock(device);
    device->clocks.untracked_order |= sg_slot_bit(slot);
    sg_device_unlock(device);
}

static void slot_dirty(struct sg_device *device, sg_slot slot)
{
    if (device && !(atomic_load_explicit(&device->clocks.dirty, memory_order_relaxed) & sg_slot_bit(slot)))
        atomic_fetch_or_explicit(&device->clocks.dirty, sg_slot_bit(slot), memory_order_release);
}

/* Comes after the driver's call. Whoever clears the bit asks the driver about the stream only afterwards. If the
   question came before this call, the bit is seen here as cleared. If it came later, the answer covers this work. */
void sg_core_slot_submitted(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = device_tracking(core, ordinal, slot);
    if (device && atomic_load_explicit(&device->clocks.upkept, memory_order_relaxed) & sg_slot_bit(slot))
        atomic_fetch_and_explicit(&device->clocks.upkept, ~sg_slot_bit(slot), memory_order_relaxed);
    if (device && !(atomic_load_explicit(&device->clocks.fresh, memory_order_relaxed) & sg_slot_bit(slot)))
        atomic_fetch_or_explicit(&device->clocks.fresh, sg_slot_bit(slot), memory_order_relaxed);
    slot_dirty(device, slot);
}

/* Where the program gives it work at the same moment the stream may pass for idle: then a free waits for more streams. */
void sg_core_slot_upkeep(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = device_tracking(core, ordinal, slot);
    if (device && !(atomic_load_explicit(&device->clocks.dirty, memory_order_relaxed) & sg_slot_bit(slot)))
        atomic_fetch_or_explicit(&device->clocks.upkept, sg_slot_bit(slot), memory_order_relaxed);
    slot_dirty(device, slot);
}

bool sg_core_slot_is_fresh(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = device_tracking(core, ordinal, slot);
    return device && atomic_load_explicit(&device->clocks.fresh, memory_order_relaxed) & sg_slot_bit(slot);
}

void sg_core_shown(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return;
    sg_device_lock(device);
    sg_clocks_shown(&device->clocks, slot);
    sg_device_unlock(device);
}

bool sg_core_slot_stream(struct sg_core *core, int ordinal, sg_slot slot, struct sg_stream_id *ret)
{
    struct sg_device *device = device_tracking(core, ordinal, slot);
    if (!device)
        return false;
    sg_device_lock(device);
    bool alive = device->clocks.state[slot] == SG_SLOT_ALIVE;
    *ret = device->clocks.stream[slot];
    sg_device_unlock(device);
    return alive;
}

void sg_core_clock(struct sg_core *core, int ordinal, sg_slot slot, struct sg_vector_clock *ret)
{
    struct sg_device *device = device_tracking(core, ordinal, slot);
    if (!device) {
        memset(ret, 0, sizeof *ret);
        return;
    }
    sg_device_lock(device);
    sg_clocks_get(&device->clocks, slot, ret);
    sg_device_unlock(device);
}

void sg_core_idle_clock(struct sg_core *core, int ordinal, sg_slot slot, struct sg_vector_clock *ret_observed,
    uint64_t *ret_done)
{
    struct sg_device *device = device_tracking(core, ordinal, slot);
    *ret_done = 0;
    if (!device) {
        memset(ret_observed, 0, sizeof *ret_observed);
        return;
    }
    sg_device_lock(device);
    *ret_done = sg_clocks_get_idle(&device->clocks, slot, ret_observed);
    sg_device_unlock(device);
}

void sg_core_context_clock(struct sg_core *core, int ordinal, CUcontext context, struct sg_vector_clock *ret)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    memset(ret, 0, sizeof *ret);
    if (!device)
        return;
    sg_device_lock(device);
    uint64_t now = sg_clocks_get_of_context(&device->clocks, context, ret);
    sg_device_unlock(device);
    /* After the time: what was freed before it may have been used in any context that there was then. */
    ret->at[0] = !context || sg_context_list_is_only(&core->contexts, context) ? now : 0;
}

void sg_core_ordered_after(struct sg_core *core, int ordinal, sg_slot slot, const struct sg_vector_clock *clock)
{
    struct sg_device *device = device_tracking(core, ordinal, slot);
    if (!device)
        return;
    sg_device_lock(device);
    sg_clocks_order_after(&device->clocks, slot, clock);
    sg_device_unlock(device);
}

void sg_core_host_observed(struct sg_core *core, int ordinal, const struct sg_vector_clock *clock)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return;
    sg_device_lock(device);
    sg_clocks_host_observed(&device->clocks, clock);
    sg_device_unlock(device);
}

void sg_core_completed(struct sg_core *core, int ordinal, const struct sg_vector_clock *clock)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return;
    sg_device_lock(device);
    for (sg_slot slot = 0; slot < SG_SLOTS; slot++)
        if (clock->at[slot])
            sg_pending_complete_locked(device, sg_slot_bit(slot), clock->at[slot]);
    sg_device_unlock(device);
}
