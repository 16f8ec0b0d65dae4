/* Segments of PyTorch's cache among what PyTorch asks the driver for, in a process where its tensors come here too. A
   segment is memory of a pool's, or all that PyTorch holds once its cache is on for good. */
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

/* What there is of them on a device, and what there has been. */
struct sg_torch_segments {
    uint64_t count, bytes;
    uint64_t made, made_bytes, gone, gone_bytes;
};
struct sg_torch_segments sg_torch_segments_of(int device);

#endif
