/* Copies: a box of bytes from one place to another, rows and slices apart by pitches. */
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "memory/mem.h"

struct sim_side {
    uint64_t address, pitch, slice;
    enum { SIM_SIDE_ANY, SIM_SIDE_DEVICE, SIM_SIDE_HOST } expected; /* what the function says it is */
};

struct sim_box {
    struct sim_side dst, src;
    uint64_t width, height, depth;
    bool peer; /* a copy between devices by name, which needs no access from one to the other */
};

/* Enters the copy into the stream. With `blocking`, returns once it is complete, unless both sides are device memory
   and `peer` is not set; without, it still does for pageable host memory where the driver does. Not locked. */
CUresult sim_copy_box(const CUDA_MEMCPY3D *copy, struct sim_box *ret);
CUresult sim_copy(const struct sim_box *box, CUstream stream, bool blocking);

#endif
