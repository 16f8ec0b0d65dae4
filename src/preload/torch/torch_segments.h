/* Segments of PyTorch's cache among what PyTorch asks the driver for, in a process where its tensors come here too.

   Why. A segment and a tensor are both a cudaMalloc. They are freed differently: the cache has ordered its segment's
   work itself, a tensor's free follows its stream.

   How. A table by address, read without a lock. It is written under SG_LOCK_TORCH when a segment comes or goes.

   Limits. 49,152 segments; a segment is 2 MiB or more, so that is 96 GiB. Later ones are taken for tensors.

   For example, a pool's cache asks for 20 MiB at 0x304000000: it is entered. Later cudaFree(0x304000000) finds it, and
   the free is one of the cache's. */
#ifndef SG_TORCH_SEGMENTS_H
#define SG_TORCH_SEGMENTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A thread's allocation belongs to PyTorch's cache, or has. From then on each allocation and free is looked at. */
extern atomic_bool sg_torch_segments_seen __attribute__((visibility("hidden")));

/* PyTorch's cache got a segment from the driver, on the current device; and gives it back: whether it is one. */
void sg_torch_segment_made(const void *address, size_t bytes);
bool sg_torch_segment_gone(const void *address);

bool sg_torch_is_segment(const void *address);

/* Segments that there are on a device, and those that there have been. */
struct sg_torch_segments {
    uint64_t count, bytes;
    uint64_t made, made_bytes, gone, gone_bytes;
};
struct sg_torch_segments sg_torch_segments_of(int device);

#endif
