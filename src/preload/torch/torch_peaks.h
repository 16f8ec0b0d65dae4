/* Peaks of what is ours apart from the segments of PyTorch's cache, which are blocks of ours.

   Why. PyTorch's statistics have one peak for tensors of both. The core's own peak has whole segments in it, idle or not.

   How. Between two changes of the segments their bytes are constant, so such an *interval* has an exact peak without them. The
   largest of these counts.

   Limits. A thread that allocates while another gets a segment may be noted in the wrong interval.

   For example, a tensor of 500 MiB is ours, and a pool has a segment of 300 MiB: the core's peak is 800 MiB. The segment
   goes, and a tensor of 200 MiB comes. The peaks of the intervals are 500, 800 - 300, and 700 MiB: 700. */
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
struct sg_torch_peaks {
    uint64_t level[SG_STAT_COUNT], segment_bytes;
};
struct sg_torch_peaks sg_torch_peaks_of(int device);

#endif
