/* A device that is not ready has no locks of its own, so a note about it is made under `setup`, in sg_core.unready.
   sg_device_get() takes these notes over when it makes the device. The lookup returns with `setup` held in that case,
   or the device could become ready between the look and the note. */
#include "core/outside_memory.h"

#include "core/grow.h"
#include "core/state/locks.h"
#include "core/state/outside_bytes.h"

/* The device, if it is ready. NULL: it is not, and `setup` is held, so that it stays so until the caller gives
   `setup` back. */
SG_UNCHECKED_LOCKS static struct sg_device *outside_device(struct sg_core *core, int ordinal)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (device)
        return device;
    sg_setup_lock(core);
    device = sg_device_known(core, ordinal);
    if (device)
        sg_setup_unlock(core);
    return device;
}

/* A replay takes these notes from its trace, and without an observer nobody would read them. */
SG_UNCHECKED_LOCKS void sg_core_note_outside(struct sg_core *core, int ordinal, bool current)
{
    if (!core->observer.emit || core->replay || (unsigned)ordinal >= SG_DEVICES_MAX)
        return;
    struct sg_device *device = outside_device(core, ordinal);
    if (!device) {
        sg_core_show_outside_in_setup(core, ordinal, current);
        sg_setup_unlock(core);
    } else if (device->total_bytes) {
        sg_grow_lock(device);
        sg_device_show_outside_growing(device, current);
        sg_grow_unlock(device);
    }
}

SG_UNCHECKED_LOCKS void sg_core_count_outside(struct sg_core *core, int ordinal)
{
    if ((unsigned)ordinal >= SG_DEVICES_MAX)
        return;
    struct sg_device *device = outside_device(core, ordinal);
    if (device) {
        sg_count(device, SG_STAT_outside_allocs, 1);
    } else {
        core->unready[ordinal].outside_allocs++;
        sg_setup_unlock(core);
    }
}

/* Notes a call that the driver refused on a device that is not ready. Only the current device says how much is free.
   So the room is reckoned from known memory here, and the report asks again. A call that failed although there was
   room is short by a unit. */
static void refuse_in_setup(struct sg_core *core, int ordinal, enum segalloc_outside by, uint64_t bytes)
    SG_REQUIRES(setup)
{
    SG_ASSERT_HELD(&core->setup);
    struct sg_unready *unready = &core->unready[ordinal];
    size_t total = 0;
    if (core->observer.emit && !unready->total_bytes)
        sg_core_show_outside_in_setup(core, ordinal, /* current */ false);
    if (sg_core_driver(core)->device_total(&total, ordinal) != CUDA_SUCCESS)
        total = 0;
    uint64_t outside = sg_outside_stays(&unready->outside), room = total > outside ? total - outside : 0;
    unready->refused++;
    unready->shortage = (struct sg_shortage){.asked = bytes,
        .takes = bytes,
        .total = total,
        .limit = total,
        .outside = outside,
        .room = room,
        .short_by = bytes > room ? bytes - room : SG_UNIT,
        .by = by};
    sg_event_emit(&core->observer, SEGALLOC_RECORD_REFUSED_OUTSIDE, 0, sg_unknown_stream_of(ordinal), by, bytes);
}

SG_UNCHECKED_LOCKS void sg_core_refused_outside(struct sg_core *core, int ordinal, enum segalloc_outside by,
    uint64_t bytes)
{
    if ((unsigned)ordinal >= SG_DEVICES_MAX)
        return;
    struct sg_device *device = outside_device(core, ordinal);
    if (device) {
        sg_device_refused_outside(device, by, bytes);
    } else {
        refuse_in_setup(core, ordinal, by, bytes);
        sg_setup_unlock(core);
    }
}

SG_UNCHECKED_LOCKS void sg_core_failed(struct sg_core *core, int ordinal)
{
    if ((unsigned)ordinal >= SG_DEVICES_MAX)
        return;
    struct sg_device *device = outside_device(core, ordinal);
    if (device) {
        sg_count(device, SG_STAT_ooms, 1);
    } else {
        core->unready[ordinal].ooms++;
        sg_setup_unlock(core);
    }
}

SG_UNCHECKED_LOCKS void sg_core_settled(struct sg_core *core, int ordinal, enum segalloc_settled how, size_t bytes)
{
    if ((unsigned)ordinal >= SG_DEVICES_MAX)
        return;
    struct sg_device *device = outside_device(core, ordinal);
    if (device) {
        sg_device_lock(device);
        sg_emit(device, SEGALLOC_RECORD_SETTLED, 0, sg_device_unknown_stream(device), how, bytes);
        sg_device_unlock(device);
    } else {
        sg_event_emit(&core->observer, SEGALLOC_RECORD_SETTLED, 0, sg_unknown_stream_of(ordinal), how, bytes);
        sg_setup_unlock(core);
    }
}
