/* The state of a device with fixed segments. segments/fixed_segments.h says how it changes.

   Nouns. A *segment* is memory of one cuMemAlloc. A *pool* is the segments of one context, of which PyTorch's rules
   choose. *Doomed* segments were given back by the rules, and are freed once `lock` is dropped.

   For example, a block of 3 MiB in a segment of 20 MiB: `segment` has one row of 20 MiB with live = 1. `live` maps
   the block's address to an extent, which has its size, stream and site. */
#ifndef SG_CORE_STATE_SEGMENTS_H
#define SG_CORE_STATE_SEGMENTS_H

#include "base/idmap.h"
#include "core/state/device.h"

/* Guarded by the lock of the device. */
struct sg_segments {
    struct sg_device *device;
    struct sg_torch *torch;
    struct sg_idmap live; /* address -> extent, which holds what the rules do not */
    struct sg_segment {
        CUdeviceptr base;
        uint64_t bytes;
        CUcontext context; /* whose end frees it */
        uint64_t live;     /* blocks in it */
    } * segment;           /* what we hold from the driver, by address */
    uint32_t segments;
    struct sg_segment *doomed; /* to be freed as soon as the lock is dropped */
    uint32_t doomed_count;
    CUcontext context[SG_CONTEXTS_MAX]; /* by the number of its pool */
    uint32_t contexts;
    struct sg_segment_request { /* by the program: the allocation that the rules decide on */
        size_t bytes;
        uint32_t stream;
        CUcontext context;
        bool replayed; /* the trace knows that nothing free serves it */
    } asked;
};

#endif
