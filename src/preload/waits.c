/* What the program learns of its own streams and contexts by asking about them or waiting for them, the core learns
   too: their work is complete. The same of events is in events.c. */
#include <stddef.h>

#include "contexts.h"
#include "hooks.h"
#include "life.h"
#include "memory.h"
#include "streams.h"

/* What is complete once the driver says that a stream is: read before it is asked. */
static bool clock_of(CUstream stream, bool per_thread, struct sg_place *ret_place, struct sg_clock *ret_clock)
{
    struct sg_core *core = sg_following() && !sg_follow_blind() && sg_streams_idle_tells() ? sg_begin() : NULL;
    if (!core)
        return false;
    bool known = sg_streams_find(core, stream, per_thread, ret_place);
    if (known)
        sg_core_idle_clock(core, ret_place->device, ret_place->slot, ret_clock);
    sg_end();
    return known;
}

static void complete(int device, const struct sg_clock *clock, bool opaque)
{
    struct sg_core *core = sg_begin();
    if (!core)
        return;
    sg_core_completed(core, device, clock);
    if (opaque)
        sg_streams_told_all(core);
    sg_end();
}

static CUresult ask(CUresult (*real)(CUstream), CUstream stream, bool per_thread)
{
    struct sg_place place;
    struct sg_clock clock;
    bool known = clock_of(stream, per_thread, &place, &clock);
    CUresult result = real(stream);
    if (known && result == CUDA_SUCCESS)
        complete(place.device, &clock, sg_streams_is_opaque(&place));
    return result;
}

CUresult cuStreamQuery(CUstream stream)
{
    return ask(sg_real()->cuStreamQuery, stream, false);
}

CUresult cuStreamQuery_ptsz(CUstream stream)
{
    return ask(sg_real()->cuStreamQuery_ptsz, stream, true);
}

CUresult cuStreamSynchronize(CUstream stream)
{
    return ask(sg_real()->cuStreamSynchronize, stream, false);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    return ask(sg_real()->cuStreamSynchronize_ptsz, stream, true);
}

/* A primary context stands for the green ones too, but not for others of its device. */
static bool clock_of_context(CUcontext context, int *ret_device, struct sg_clock *ret_clock)
{
    bool known = context && sg_following() && !sg_follow_blind() && sg_contexts_device(context, ret_device);
    struct sg_core *core = known ? sg_begin() : NULL;
    if (!core)
        return false;
    bool all = sg_contexts_stands_for_all(context);
    sg_core_context_clock(core, *ret_device, all ? NULL : context, ret_clock);
    if (all && !sg_contexts_stands_for_all(context)) /* another thread has made one meanwhile */
        sg_core_context_clock(core, *ret_device, context, ret_clock);
    if (sg_contexts_devices())
        ret_clock->at[0] = 0; /* what waits for all work waits for other devices' too */
    sg_end();
    return true;
}

/* What was freed after all work that there is gets its event before the program waits for all of it: when that is over,
   so is the event, and the memory is free as it is natively. Where streams are followed the wait itself tells. */
static void mark_first(void)
{
    if (!sg_following())
        sg_memory_mark();
}

CUresult cuCtxSynchronize(void)
{
    CUcontext context = NULL;
    int device;
    struct sg_clock clock;
    mark_first();
    const struct sg_driver *driver = sg_following() ? sg_life_driver() : NULL;
    if (driver && driver->ctx_get_current(&context) != CUDA_SUCCESS)
        context = NULL;
    bool known = clock_of_context(context, &device, &clock);
    CUresult result = sg_real()->cuCtxSynchronize();
    if (known && result == CUDA_SUCCESS)
        complete(device, &clock, sg_streams_any_opaque());
    return result;
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
    int device;
    struct sg_clock clock;
    mark_first();
    bool known = clock_of_context(context, &device, &clock);
    CUresult result = sg_real()->cuCtxSynchronize_v2(context);
    if (known && result == CUDA_SUCCESS)
        complete(device, &clock, sg_streams_any_opaque());
    return result;
}
