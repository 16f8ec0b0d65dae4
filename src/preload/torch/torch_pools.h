/* PyTorch's pools that are being allocated for: MemPool, and captures of CUDA graphs. PyTorch routes a tensor into one by
   a question about the thread or its stream; the same question says here whose cache a tensor belongs to. */
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

/* True if what this thread allocates now goes into a pool. */
bool sg_torch_pools_route(void);

#endif
