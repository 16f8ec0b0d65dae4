/* Copies, as far as they reach memory of ours from another device (copy_hooks.c).

   For example, a stream of device 1 copies 4 MiB from the host into a block of device 0. No peer access is needed for
   that. The block is marked as used across devices, so its free waits for device 1 too. */
#ifndef SG_COPY_HOOKS_H
#define SG_COPY_HOOKS_H

#include <stdbool.h>

#include "track/contexts.h"
#include "driver/cuda_abi.h"

/* After the driver's call: a stream was given work on `address`, which may be memory of ours. A stream of another
   device needs no access for a copy from or to the host, or for a set. A free of the block's device would not ask
   about it otherwise. `per_thread`: as of sg_stream_named(). */
void sg_copies_used_on_devices(CUdeviceptr address, CUstream stream, bool per_thread); /* where there are several */
static inline void sg_copies_used(CUdeviceptr address, CUstream stream, bool per_thread)
{
    if (sg_contexts_devices())
        sg_copies_used_on_devices(address, stream, per_thread);
}

#endif
