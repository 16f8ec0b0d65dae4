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

static const enum sg_stat bytes_of[SG_TORCH_BYTES] = {SG_STAT_requested_bytes, SG_STAT_allocated_bytes,
    SG_STAT_active_bytes, SG_STAT_reserved_bytes};

/* True if an interval has at least as much as another one in all. The smaller one says nothing more then, since no sum of
   its could be larger. */
static bool interval_exceeds(const struct sg_torch_interval *larger, const struct sg_torch_interval *smaller)
{
    bool exceeds = larger->segments >= smaller->segments;
    for (int i = 0; i < SG_TORCH_BYTES; i++)
        exceeds &= larger->own[i] >= smaller->own[i];
    return exceeds;
}

static uint64_t interval_distance(const struct sg_torch_interval *one, const struct sg_torch_interval *other)
{
    return one->segments > other->segments ? one->segments - other->segments : other->segments - one->segments;
}

/* Makes one of the new interval and of the one with the nearest segments: never less than either. */
static void peaks_merge(struct sg_torch_peaks *to, const struct sg_torch_interval *new)
{
    struct sg_torch_interval *nearest = &to->interval[0];
    for (unsigned i = 1; i < to->intervals; i++)
        if (interval_distance(&to->interval[i], new) < interval_distance(nearest, new))
            nearest = &to->interval[i];
    peak_raise_to(&nearest->segments, new->segments);
    for (int i = 0; i < SG_TORCH_BYTES; i++)
        peak_raise_to(&nearest->own[i], new->own[i]);
}

/* Keeps the intervals of which none exceeds another. For example, one has segments of 300 MiB and 500 MiB of its own. One
   with 300 and 400 is left out, and one with 200 and 600 is kept beside it. One with 300 and 700 takes the place of both. */
static void peaks_add_interval(struct sg_torch_peaks *to, const struct sg_torch_interval *new)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < to->intervals; i++)
        if (interval_exceeds(&to->interval[i], new))
            return;
    for (unsigned i = 0; i < to->intervals; i++)
        if (!interval_exceeds(new, &to->interval[i]))
            to->interval[kept++] = to->interval[i];
    to->intervals = kept;
    if (kept < SG_TORCH_INTERVALS)
        to->interval[to->intervals++] = *new;
    else
        peaks_merge(to, new);
}

/* The cache had no more in an interval than its segments of then, nor more than `cache`, its own peak. So the smaller of
   the two is added to what was ours. */
uint64_t sg_torch_peaks_sum(const struct sg_torch_peaks *of, enum sg_stat level, uint64_t cache, uint64_t beyond)
{
    uint64_t most = 0;
    int at = 0;
    while (at < SG_TORCH_BYTES - 1 && bytes_of[at] != level)
        at++;
    for (unsigned i = 0; i < of->intervals; i++) {
        uint64_t room = of->interval[i].segments + beyond;
        peak_raise_to(&most, of->interval[i].own[at] + (cache < room ? cache : room));
    }
    return most;
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
    struct sg_torch_interval new = {.segments = segments->bytes};
    for (int i = 0; i < SG_TORCH_BYTES; i++) {
        uint64_t peak = interval->peak[bytes_of[i]];
        new.own[i] = peak > segments->bytes ? peak - segments->bytes : 0;
    }
    peaks_add_interval(to, &new);
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
