/* Where tensors get their bytes: one table entry a strategy. */
#ifndef TRAIN_ALLOC_H
#define TRAIN_ALLOC_H

#include <stddef.h>

#include "memory/cuda_rt.h"

enum { TENSOR_ALIGNMENT = 512 };

struct allocator {
    /* Takes `bytes` (> 0) and returns a CUDA error value; *ret_pointer is untouched on failure. */
    int (*take)(struct allocator *self, size_t bytes, void **ret_pointer);
    /* Gives back what take returned, with the same size. Work queued on the device may still use it. */
    int (*give)(struct allocator *self, void *pointer, size_t bytes);
    void (*close)(struct allocator *self);
};

/* cudaMalloc and cudaFree a tensor at a time. `rt` NULL plans: the pointers are not memory. */
struct allocator *alloc_eager_open(const struct cuda_rt *rt);

/* One cudaMalloc of `capacity` bytes, tensors at the lowest offset that fits, on multiples of TENSOR_ALIGNMENT: the
   same sequence of calls gives the same offsets. Memory given back is taken again at once, which is right for work that
   is all queued on one stream. `rt` NULL plans: nothing is allocated, `capacity` is ignored and the pointers are not
   memory. */
int alloc_arena_open(const struct cuda_rt *rt, size_t capacity, struct allocator **ret_allocator);

/* The most bytes of the arena that were in use up to their highest offset. */
size_t alloc_arena_extent(const struct allocator *arena);

#endif
