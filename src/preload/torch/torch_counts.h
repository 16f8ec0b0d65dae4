/* PyTorch's statistics while its cache is off: the core's counts are added to those of its allocator.

   Why. torch.cuda.memory_stats() asks PyTorch's allocator, which has nothing then. Programs decide by these figures:
   they print peaks, empty caches, choose batch sizes.

   How. PyTorch fills in its own structure first. Levels (bytes now, peak) and totals (bytes ever) of the core are added
   family by family. Segments of PyTorch's cache are blocks of ours and are taken off, because its own counts have the
   tensors in them.

   Limits. The structure's layout is known by release (torch_layout.h). All tensors count as of the large pool. Peaks of
   the two caches may be of different moments: theirs count as if they had met, as far as there was memory for both. A segment is a page, and num_device_alloc counts the driver's calls that make
   pages, so neither is what PyTorch's own cache would have.

   For example, 10 tensors of 4 MiB are ours. A pool has 3 tensors of 1 MiB in one segment of 20 MiB, a block of ours
   too. The core counts 60 MiB, less 20 MiB is 40 MiB. PyTorch counts 3 MiB. memory_allocated() says 43 MiB. */
#ifndef SG_TORCH_COUNTS_H
#define SG_TORCH_COUNTS_H

#include <stddef.h>

/* `statistics`: a c10::CachingDeviceAllocator::DeviceStats, filled in by PyTorch's own allocator, with a map of
   `map_bytes` between its reserved and its active bytes. */
void sg_torch_counts_add(void *statistics, size_t map_bytes, int device);

/* The peaks begin anew; and the totals. */
void sg_torch_counts_reset(int device);
void sg_torch_counts_reset_totals(int device);

/* A tensor's allocation on the device found no memory: it is tried again, or it has failed. PyTorch's cache, which counts
   both, was not asked. */
void sg_torch_counts_retry(int device);
void sg_torch_counts_oom(int device);

#endif
