#include "core/outside_memory.h"

#include "core/start.h"
#include "core/state/locks.h"
#include "core/state/outside_bytes.h"

void sg_core_note_outside(struct sg_core *core, int ordinal)
{
    struct sg_device *device = core->observer.emit && !core->replay ? sg_device_get(core, ordinal) : NULL;
    if (!device || device->total_bytes == 0)
        return;
    sg_grow_lock(device);
    sg_device_show_outside_growing(device);
    sg_grow_unlock(device);
}

void sg_core_count_outside(struct sg_core *core, int ordinal)
{
    struct sg_device *device = sg_device_get(core, ordinal);
    if (device)
        sg_count(device, SG_STAT_outside_allocs, 1);
}
