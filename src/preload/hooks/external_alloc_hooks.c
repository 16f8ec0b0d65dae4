/* Memory that programs take from the driver by themselves: from its pools, as physical allocations, as arrays.
   Modules, contexts, graphs and first launches of a kernel take some too. It stays the driver's own, but must not
   run out because of idle memory of ours. */
#include "hooks/external_alloc_hooks.h"

#include <stddef.h>

#include "track/captures.h"
#include "process/hooks.h"
#include "process/process.h"
#include "serve/requests.h"

bool sg_external_made_room_by(struct sg_core *core)
{
    size_t given = 0;
    if (!core || sg_captures_active()) /* what is pending may not be asked about then */
        return false;
    sg_memory_run_deferred(core);
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        given += sg_core_trim(core, device, 0);
    return given > 0;
}

bool sg_external_made_room(void)
{
    struct sg_core *core = sg_enter();
    bool made = sg_external_made_room_by(core);
    if (core)
        sg_leave();
    return made;
}

#define TAKES(symbol, base, version, threads, parameters, arguments) \
    CUresult symbol parameters \
    { \
        CUresult result = sg_real()->symbol arguments; \
        if (sg_external_ran_out(result)) \
            result = sg_real()->symbol arguments; \
        return result; \
    }
#include "hooks/external_alloc_hooks.def"
