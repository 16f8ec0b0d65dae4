/* PyTorch's pools that are being allocated for: MemPool, and captures of CUDA graphs.

   Why. PyTorch routes a tensor into a pool by a question about the thread or its stream. Here that question says to
   which cache a tensor belongs.

   How. A pool's filter is a std::function that PyTorch gives to beginAllocateToPool(); a copy of it is kept in a slot
   until the pool ends. Filters are called without a lock, since one may ask the driver. The end of a pool waits for
   calls that are under way.

   Limits. 256 pools at a time. Beyond that all tensors count as a pool's.

   For example, a graph is captured on stream 5: the filter accepts stream 5. A tensor of stream 5 comes from PyTorch's
   cache, a tensor of stream 0 from us. */
#ifndef SG_TORCH_POOLS_H
#define SG_TORCH_POOLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "torch/cxx_function.h"

/* A pool's number, which is a pair of words. */
struct sg_torch_pool {
    uint64_t first, second;
};

/* PyTorch begins to allocate for the pool on a device whatever `filter` accepts: a bool of a stream. The copy of it is
   taken over. And ends that. */
void sg_torch_pools_begin(int device, struct sg_torch_pool pool, struct sg_cxx_function filter);
void sg_torch_pools_end(int device, struct sg_torch_pool pool);

/* True if one has ever begun. */
bool sg_torch_pools_seen(void);

/* True if any thread allocates for a pool of the device now. */
bool sg_torch_pools_under_way(int device);

/* True if what this thread allocates now goes into a pool. */
bool sg_torch_pools_route(void);

#endif
