/* The fixed sizes of PyTorch's native CUDA allocator, in bytes (c10/core/AllocatorConfig.h).

   They divide requests, after rounding, in three:
     up to 1 MiB        small pool, segments of 2 MiB
     below 10 MiB       large pool, segments of large_segment_size_mb, 20 MiB by default
     10 MiB and more    large pool, a segment of their own size, rounded up to 2 MiB

   Examples: 1 MiB is small. 1 MiB and 512 bytes get a segment of 20 MiB; 10 MiB get one of 10, and 11 MiB one of 12. */
#ifndef SG_CACHING_CONSTANTS_H
#define SG_CACHING_CONSTANTS_H

enum {
    SG_TORCH_ALIGN = 512,              /* every block is a multiple of this */
    SG_TORCH_SMALL = 1 << 20,          /* the largest request of the small pool */
    SG_TORCH_SMALL_SEGMENT = 2 << 20,  /* segment, or chunk of an expandable segment, of the small pool */
    SG_TORCH_MIN_LARGE = 10 << 20,     /* requests from here on get a segment of their own size … */
    SG_TORCH_LARGE_STEP = 2 << 20      /* … rounded up to this */
};

#endif
