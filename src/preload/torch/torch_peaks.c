/* A table of peaks by device. The core keeps the peak of the interval that is under way. */
#include "inspect/core_state.h"
#include "torch/torch_peaks.h"

#include <string.h>

#include "process/process.h"
#include "torch/torch_segments.h"

static struct sg_torch_peaks peaks[SG_DEVICES_MAX]; /* guarded by SG_LOCK_TORCH */

static void peak_raise_to(uint64_t *peak, uint64_t value)
{
    *peak = *peak > value ? *peak : value;
}

/* The interval that is under way, added to those before. */
static void peaks_add(struct sg_torch_peaks *to, const struct sg_stats *interval,
    const struct sg_torch_segments *segments)
{
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        uint64_t theirs = i == SG_STAT_allocations ? segments->count : segments->bytes;
        peak_raise_to(&to->level[i], interval->peak[i] > theirs ? interval->peak[i] - theirs : 0);
    }
    peak_raise_to(&to->segment_bytes, segments->bytes);
}

/* Every device is looked at, since the caller does not say whose memory the segment is. */
static void peaks_turn(bool counts)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    for (int device = 0; device < SG_DEVICES_MAX; device++) {
        struct sg_stats interval;
        if (!sg_core_interval_peaks(core, device, /* ends */ true, &interval) || !counts)
            continue;
        struct sg_torch_segments segments = sg_torch_segments_of(device);
        sg_process_lock(SG_LOCK_TORCH);
        peaks_add(&peaks[device], &interval, &segments);
        sg_process_unlock(SG_LOCK_TORCH);
    }
    sg_leave();
}

void sg_torch_peaks_end(void)
{
    peaks_turn(/* counts */ true);
}

void sg_torch_peaks_begin(void)
{
    peaks_turn(/* counts */ false);
}

void sg_torch_peaks_reset(int device)
{
    if (device < 0 || device >= SG_DEVICES_MAX)
        return;
    sg_torch_peaks_begin();
    sg_process_lock(SG_LOCK_TORCH);
    memset(&peaks[device], 0, sizeof peaks[device]);
    sg_process_unlock(SG_LOCK_TORCH);
}

struct sg_torch_peaks sg_torch_peaks_of(int device)
{
    struct sg_torch_peaks of = {.segment_bytes = 0};
    struct sg_stats interval;
    if (device < 0 || device >= SG_DEVICES_MAX)
        return of;
    sg_process_lock(SG_LOCK_TORCH);
    of = peaks[device];
    sg_process_unlock(SG_LOCK_TORCH);
    struct sg_core *core = sg_enter();
    if (core && sg_core_interval_peaks(core, device, /* ends */ false, &interval)) {
        struct sg_torch_segments segments = sg_torch_segments_of(device);
        peaks_add(&of, &interval, &segments);
    }
    if (core)
        sg_leave();
    return of;
}
