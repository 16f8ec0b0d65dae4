/* The device and the context of each thread. */
#ifndef SG_RT_CONTEXT_H
#define SG_RT_CONTEXT_H

#include <stdbool.h>

#include "libcuda.h"

/* Makes sure that the thread has a current context: what the program made current itself, else the primary context of
   the thread's device, which is retained once a process. Loads the driver on first use. */
cudaError_t sg_rt_context(void);

/* The thread's device: that of the current context if the program chose one, else what cudaSetDevice said. Creates no
   context. */
cudaError_t sg_rt_device(int *ret);

/* cudaSuccess when `device` is one, cudaErrorInvalidDevice or the reason for there being none otherwise. */
cudaError_t sg_rt_check_device(int device);

/* The primary context of a device, created and retained if it is not yet. Leaves the current one alone. */
cudaError_t sg_rt_primary(int device, CUcontext *ret);

/* The device whose primary context this is; -1 if it is none that the runtime retained. */
int sg_rt_device_of(CUcontext context);

/* Counts the resets of devices: what was made in a context of before is gone. */
int sg_rt_era(void);

#endif
