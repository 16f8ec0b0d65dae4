/* Peaks of what is ours apart from the segments of PyTorch's cache, which are blocks of ours.

   Why. PyTorch's statistics have one peak for tensors of both. The core's own peak has whole segments in it, idle or not.

   How. Between two changes of the segments their bytes are constant, so such an *interval* has an exact peak without them. PyTorch's
   cache had in an interval what fits its segments then, and its own peak at most. The largest sum of the two counts.

   Limits. A thread that allocates while another gets a segment may be noted in the wrong interval. 32 intervals are kept, after
   those are left out that another one exceeds in all. Then two become one that has the larger of each, so a peak may be too high.

   For example, a tensor of 500 MiB is ours, and a pool has a segment of 300 MiB: the core's peak is 800 MiB. The segment
   goes, and a tensor of 200 MiB comes. The peaks of the intervals are 500, 800 - 300, and 700 MiB: 700. If the pool had tensors of
   250 MiB in its segment, the sums are 500, 500 + 250, and 700 MiB: 750, and not 950. */
#ifndef SG_TORCH_PEAKS_H
#define SG_TORCH_PEAKS_H

#include <stdint.h>

#include "base/stats.h"

/* A segment comes or goes: the interval ends before that. Another begins once the core has noted it. No lock is held. */
void sg_torch_peaks_end(void);
void sg_torch_peaks_begin(void);

/* The peaks begin again, on a device. */
void sg_torch_peaks_reset(int device);

/* The peaks of bytes and of allocations without segments, and the most bytes that segments had. */
enum { SG_TORCH_BYTES = 4, SG_TORCH_INTERVALS = 32 };
struct sg_torch_peaks {
    uint64_t level[SG_STAT_COUNT], segment_bytes;
    unsigned intervals;
    struct sg_torch_interval {
        uint64_t segments, own[SG_TORCH_BYTES]; /* bytes of each kind: requested, allocated, active, reserved */
    } interval[SG_TORCH_INTERVALS];
};
struct sg_torch_peaks sg_torch_peaks_of(int device);

/* The most bytes of a level, one of those four, that were there at once: ours, and what PyTorch's cache had, at most `cache`.
   `beyond`: bytes that the cache held otherwise than in segments. */
uint64_t sg_torch_peaks_sum(const struct sg_torch_peaks *of, enum sg_stat level, uint64_t cache, uint64_t beyond);

#endif
