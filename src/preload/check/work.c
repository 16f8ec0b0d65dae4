/* Work of ours is declared to the simulator's checker, so that it is not taken for the program's.

   For example, a capture is active somewhere in the process. sg_work_enter() finds that, counts one block as left out
   "during captures", and keeps no capture from beginning. */
#include "check/work.h"

#include <stdatomic.h>

#include "check/faults.h"
#include "check/held.h"
#include "check/state.h"
#include "process/hooks.h"
#include "services/hazard_annotations.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/streams.h"

bool sg_work_went_well(CUresult result)
{
    sg_fault_seen(result, "work of the library's own");
    if (sg_driver_is_sticky(result))
        atomic_store(&sg_check_goes_on, false);
    if (result != CUDA_SUCCESS)
        sg_check_left_out(SG_LEFT_OUT_DRIVER);
    return result == CUDA_SUCCESS;
}

/* *ret_capturing: there is none because of a capture. */
static struct sg_lane *work_lane(CUcontext context, bool *ret_capturing)
{
    sg_captures_exclude();
    *ret_capturing = sg_captures_active();
    bool none = *ret_capturing || sg_contexts_green(context);
    struct sg_lane *lane = none ? NULL : sg_lane_of(context, /* make */ !sg_held_any(context));
    if (lane)
        sg_annotate_upkeep(true);
    else
        sg_captures_allow();
    return lane;
}

struct sg_lane *sg_work_try(CUcontext context)
{
    bool capturing;
    return work_lane(context, &capturing);
}

struct sg_lane *sg_work_enter(CUcontext context)
{
    bool capturing;
    struct sg_lane *lane = work_lane(context, &capturing);
    if (!lane)
        sg_check_left_out(capturing ? SG_LEFT_OUT_CAPTURE : SG_LEFT_OUT_CONTEXT);
    return lane;
}

/* The legacy stream is asked for every stream: which of them are blocking the driver says only by another call. */
bool sg_work_is_idle(CUstream stream)
{
    return !sg_samples_waits_are_vain() && sg_real()->cuStreamQuery(stream) == CUDA_SUCCESS &&
           sg_real()->cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS;
}

bool sg_work_may(CUcontext context, CUstream stream)
{
    return !sg_held_any(context) || sg_work_is_idle(stream);
}

void sg_work_has_no_stream(void)
{
    sg_check_left_out(sg_held_some() ? SG_LEFT_OUT_HELD : SG_LEFT_OUT_STREAM);
}

void sg_work_leave(void)
{
    sg_annotate_upkeep(false);
    sg_captures_allow();
}

bool sg_work_stream(struct sg_core *core, int device, sg_slot slot, CUcontext context, CUstream *ret)
{
    struct sg_stream_id id;
    struct sg_tracked_stream own;
    if (!sg_core_slot_stream(core, device, slot, &id) || id.context != context || id.flags & SG_STREAM_UNFENCEABLE)
        return false;
    *ret = id.handle;
    return (!id.per_thread || (sg_streams_find(core, CU_STREAM_PER_THREAD, true, &own) && own.slot == slot)) &&
           sg_work_may(context, *ret);
}
