/* Work of ours is declared to the simulator's checker, so that it is not taken for the program's. */
#include "check/work.h"

#include <stdatomic.h>

#include "check/faults.h"
#include "check/state.h"
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

struct sg_lane *sg_work_enter(CUcontext context)
{
    sg_captures_exclude();
    bool capturing = sg_captures_active();
    struct sg_lane *lane = capturing || sg_contexts_green(context) ? NULL : sg_lane_of(context, true);
    if (lane) {
        sg_annotate_upkeep(true);
        return lane;
    }
    sg_captures_allow();
    sg_check_left_out(capturing ? SG_LEFT_OUT_CAPTURE : SG_LEFT_OUT_CONTEXT);
    return NULL;
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
    return !id.per_thread || (sg_streams_find(core, CU_STREAM_PER_THREAD, true, &own) && own.slot == slot);
}
