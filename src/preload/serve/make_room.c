/* Own memory first: frees that are due, then idle pages of every device. Then a question to other processes. */
#include "serve/make_room.h"

#include <stddef.h>

#include "process/capture_mode.h"
#include "process/process.h"
#include "serve/deferred_frees.h"
#include "services/trim.h"
#include "track/captures.h"
#include "track/held_outside.h"

/* All devices give back, because the driver does not say which one it has run out on. While a capture is active this is
   done in relaxed mode, as when the core grows. Then the trim waits only for events from before the capture: another
   wait would ruin it. */
bool sg_made_room_by(struct sg_core *core)
{
    CUstreamCaptureMode mode;
    size_t given = 0;
    if (!core)
        return false;
    bool capturing = sg_captures_active(), relaxed = capturing && sg_capture_mode_relax(&mode);
    if (capturing && !relaxed)
        return false;
    if (!capturing) {
        sg_memory_settle_refused(core);
        (void)sg_memory_settle_launches(core);
    }
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        given += sg_core_trim(core, device, 0);
    if (relaxed)
        sg_capture_mode_restore(&mode);
    return given > 0;
}

/* Not in a process that is over, or that has nothing to do with memory of ours. */
bool sg_made_room_by_others(int device)
{
    return !sg_process_over() && !sg_process_is_passthrough() && sg_trim_ask_others_of(device);
}

/* The nearest memory first. For others no core is needed: a process that never allocated with us may ask too. */
bool sg_made_room(enum sg_room whose)
{
    if (whose == SG_ROOM_OTHERS)
        return !sg_thread_inside() && sg_made_room_by_others(-1);
    /* A program may take memory of pools before it asks for ours: what it freed to them is waited for all the same. */
    struct sg_core *core = sg_outside_uses_pools() ? sg_enter_traced() : sg_enter();
    bool made = sg_made_room_by(core);
    if (core) {
        made |= sg_outside_waited_for_pools(NULL);
        sg_leave();
    }
    return made;
}
