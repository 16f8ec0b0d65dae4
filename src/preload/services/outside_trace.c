#include "services/outside_trace.h"

#include "core/core.h"
#include "process/process.h"
#include "services/recorder.h"
#include "track/captures.h"
#include "track/contexts.h"

bool sg_outside_traced(void)
{
    return *sg_process_conf()->trace != '\0';
}

void sg_outside_note(struct sg_core *core, int device)
{
    if (sg_captures_active() || !sg_outside_traced())
        return;
    sg_recorder_device(sg_process_driver(), device);
    sg_core_note_outside(core, device);
    sg_recorder_tick(core, device);
}

void sg_outside_took(void)
{
    const struct sg_conf *conf = sg_process_conf();
    CUcontext context;
    int device;
    bool wanted = *conf->trace || *conf->stats || conf->live;
    struct sg_core *core = wanted && !sg_captures_active() && !sg_process_over() ? sg_enter_allocation() : NULL;
    if (!core)
        return;
    if (sg_contexts_current(core, &context, &device) == CUDA_SUCCESS) {
        sg_recorder_device(sg_process_driver(), device);
        sg_core_count_outside(core, device);
        sg_recorder_tick(core, device);
        sg_outside_note(core, device);
    }
    sg_leave();
}

void sg_outside_changed(bool starts)
{
    CUcontext context;
    int device;
    if (sg_captures_active() || sg_process_over() || !sg_outside_traced())
        return;
    struct sg_core *core = starts ? sg_enter_allocation() : sg_enter();
    if (!core)
        return;
    if (sg_contexts_current(core, &context, &device) == CUDA_SUCCESS)
        sg_outside_note(core, device);
    sg_leave();
}
