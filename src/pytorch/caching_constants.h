/* The fixed sizes of PyTorch's native CUDA allocator, in bytes (c10/core/AllocatorConfig.h). */
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
