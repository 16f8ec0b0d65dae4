#include "core/outside_memory.h"

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
