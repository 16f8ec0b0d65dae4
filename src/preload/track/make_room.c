#include "track/make_room.h"

#include <stddef.h>

#include "process/process.h"
#include "track/captures.h"
#include "track/deferred_frees.h"

bool sg_made_room_by(struct sg_core *core)
{
    size_t given = 0;
    if (!core || sg_captures_active()) /* what is pending may not be asked about then */
        return false;
    sg_memory_settle(core);
    (void)sg_memory_settle_launches(core);
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        given += sg_core_trim(core, device, 0);
    return given > 0;
}

bool sg_made_room(void)
{
    struct sg_core *core = sg_enter();
    bool made = sg_made_room_by(core);
    if (core)
        sg_leave();
    return made;
}
