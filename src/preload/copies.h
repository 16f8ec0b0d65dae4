/* Copies, as far as they reach memory of ours from another device (copies.c). */
#ifndef SG_COPIES_H
#define SG_COPIES_H

#include <stdbool.h>

#include "cuda_abi.h"

/* After the driver's call: work of a stream was given `address`, which may be memory of ours. That of another device
   needs no access to it for a copy from or to the host, or a set, and no free of the block's device would ask about it.
   `per_thread`: as of sg_stream_named(). Cheap where one device is in use. */
void sg_copies_used(CUdeviceptr address, CUstream stream, bool per_thread);

#endif
