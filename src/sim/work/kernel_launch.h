/* Launches of kernels, and how much shared memory a multiprocessor has for their blocks. */
#ifndef SIM_KERNEL_LAUNCH_H
#define SIM_KERNEL_LAUNCH_H

#include "model.h"
#include "streams/work.h"

enum { SIM_THREADS_PER_BLOCK = 1024 };

/* The limits of the card's compute capability. */
const struct sim_capability *sim_kernel_capability(void);
/* Shared memory of a multiprocessor, what each block takes of it besides its own, and the most that one may have. */
size_t sim_shared_in_all(void);
size_t sim_shared_besides(void);
size_t sim_shared_of_block(void);

/* Not locked. Enters the kernel into the stream. */
CUresult sim_launch(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
    CUstream stream_handle, void **params, void **extra);

/* Locked. For a node: the work, and what was said to it. */
CUresult sim_kernel_work(const CUDA_KERNEL_NODE_PARAMS *params, struct sim_work **ret);
void sim_kernel_params(const struct sim_work *work, CUDA_KERNEL_NODE_PARAMS *ret);

#endif
