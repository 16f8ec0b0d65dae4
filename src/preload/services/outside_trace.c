#include "services/outside_trace.h"

#include "core/core.h"
#include "process/capture_mode.h"
#include "process/process.h"
#include "services/recorder.h"
#include "track/captures.h"
#include "track/context_pins.h"
#include "track/contexts.h"
#include "track/streams.h"

bool sg_outside_traced(void)
{
    return *sg_process_conf()->trace != '\0';
}

/* How much memory there is may be asked in a capture too, by a thread in relaxed mode: it touches no stream. */
static void note_device(struct sg_core *core, int device, bool current)
{
    CUstreamCaptureMode mode;
    bool relaxed = sg_captures_active() && sg_capture_mode_relax(&mode);
    sg_recorder_device(sg_process_driver(), device);
    sg_core_note_outside(core, device, current);
    if (relaxed)
        sg_capture_mode_restore(&mode);
    sg_recorder_tick(core, device);
}

void sg_outside_note(struct sg_core *core, int device)
{
    if (sg_outside_traced())
        note_device(core, device, true);
}

/* A device that has no context says nothing of others; what this process has taken of it is known all the same. */
static void note_any(struct sg_core *core, int device)
{
    CUcontext context;
    int here;
    bool current = sg_contexts_current(core, &context, &here) == CUDA_SUCCESS && here == device;
    int use = current ? -1 : sg_context_pin_current(sg_contexts_any(device));
    note_device(core, device, current || use >= 0);
    if (use >= 0)
        sg_context_unpin_current(use);
}

static void note_all(struct sg_core *core, uint64_t devices)
{
    for (uint64_t left = sg_outside_traced() ? devices : 0; left; left &= left - 1)
        note_any(core, __builtin_ctzll(left));
}

/* The current context's device; without one all that anything is known of. */
static uint64_t devices_here(struct sg_core *core)
{
    CUcontext context;
    int device;
    return sg_contexts_current(core, &context, &device) == CUDA_SUCCESS ? sg_outside_bit(device) : sg_outside_devices();
}

/* Statistics count it in any case; a record is written where there is a trace. */
void sg_outside_took(uint64_t devices)
{
    const struct sg_conf *conf = sg_process_conf();
    bool wanted = *conf->trace || *conf->stats || conf->live;
    struct sg_core *core = !wanted || sg_process_over() ? NULL : *conf->trace ? sg_enter_traced() : sg_enter_allocation();
    if (!core)
        return;
    devices = devices ? devices : devices_here(core);
    if (devices) {
        int device = __builtin_ctzll(devices);
        sg_recorder_device(sg_process_driver(), device);
        sg_core_count_outside(core, device);
        note_all(core, devices);
        sg_recorder_tick(core, device);
    }
    sg_leave();
}

/* Notes what is held now of the devices whose bits are set. The first such call may come before any allocation, so it
   may make the core. */
void sg_outside_changed(uint64_t devices, bool starts)
{
    if (sg_process_over() || !sg_outside_traced())
        return;
    struct sg_core *core = starts ? sg_enter_traced() : sg_enter();
    if (!core)
        return;
    note_all(core, (devices ? devices : devices_here(core)) | sg_outside_pool_devices());
    sg_leave();
}

uint64_t sg_outside_stream_device(CUstream stream)
{
    int device;
    bool named = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
    return named && sg_streams_device(stream, &device) ? sg_outside_bit(device) : 0;
}
