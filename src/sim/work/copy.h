/* Copies: a box of bytes from one place to another, rows and slices apart by pitches. */
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "streams/work.h"

struct sim_side {
    uint64_t address, pitch, slice;
    enum { SIM_SIDE_ANY, SIM_SIDE_DEVICE, SIM_SIDE_HOST } expected; /* what the function says it is */
};

struct sim_box {
    struct sim_side dst, src;
    uint64_t width, height, depth;
    bool peer; /* a copy between devices by name, which needs no access from one to the other */
};

/* One side of a 2D or 3D copy of the box's size. A pitch or height of 0 means rows or slices without a gap. Arrays are not
   simulated. */
CUresult sim_copy_side(CUmemorytype type, const void *host_pointer, CUdeviceptr device_pointer, size_t x, size_t y,
    size_t z, size_t pitch, size_t height, const struct sim_box *box, struct sim_side *ret);
/* The box that a call's parameters describe; CUDA_ERROR_INVALID_VALUE for none. */
CUresult sim_copy_box(const CUDA_MEMCPY3D *copy, struct sim_box *ret);
/* Enters the copy into the stream. With `blocking`, returns once it is complete, unless both sides are device memory
   and `peer` is not set; without, it still does for pageable host memory where the driver does. Not locked. */
CUresult sim_copy(const struct sim_box *box, CUstream stream, bool blocking);

/* Locked. For a node: the work, and what was said to it. */
CUresult sim_copy_work(const CUDA_MEMCPY3D *params, struct sim_work **ret);
void sim_copy_params(const struct sim_work *work, CUDA_MEMCPY3D *ret);

#endif
