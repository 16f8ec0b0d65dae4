/* Arithmetic on the GPU: cuBLAS, and the kernels of backend_gpu.cu, which NVRTC compiles at start. Both libraries and
   the driver are found by dlopen. */
#ifndef TRAIN_BACKEND_GPU_H
#define TRAIN_BACKEND_GPU_H

#include "backend/arithmetic.h"

/* Compiles the kernels for a device of compute capability `major`.`minor`; needs NVRTC and no device. *ret_image, of
   *ret_bytes, is the caller's to free. Returns 0, or -1 with one line in `error`, and the compiler's own words, if it
   had any, on stderr. */
int gpu_compile(int major, int minor, char **ret_image, size_t *ret_bytes, char *error, size_t error_size);

#endif
