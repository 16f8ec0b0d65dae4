/* PyTorch's statistics while its cache is off: what the core counts is added to what its allocator says. */
#ifndef SG_TORCH_COUNTS_H
#define SG_TORCH_COUNTS_H

#include <stddef.h>

/* `statistics`: a c10::CachingDeviceAllocator::DeviceStats, filled in by PyTorch's own allocator, with a map of
   `map_bytes` between its reserved and its active bytes. */
void sg_torch_counts_add(void *statistics, size_t map_bytes, int device);

/* The peaks begin anew; and the totals. */
void sg_torch_counts_reset(int device);
void sg_torch_counts_reset_totals(int device);

/* A tensor's allocation on the device has failed for want of memory: PyTorch's cache, which counts that, was not asked. */
void sg_torch_counts_oom(int device);

#endif
