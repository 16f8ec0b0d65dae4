/* Launches of kernels: the configuration that nvcc's code for <<<>>> notes before the launch. */
#ifndef SG_RT_LAUNCH_H
#define SG_RT_LAUNCH_H

#include "libcuda.h"
#include "runtime_abi.h"

/* Exported. Keeps the configuration of the thread's next launch; 0. */
#pragma GCC visibility push(default)
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream stream);
#pragma GCC visibility pop

#endif
