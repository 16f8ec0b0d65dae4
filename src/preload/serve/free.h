/* Frees, for all interfaces.

   How. A free passes three gates. A block that a capture or a graph needs is put off (serve/deferred_frees.h). Any other
   goes to the core with its mode (serve/free_mode.h). If the core can't have stream order or an event, it waits instead.
   A capture that has begun meanwhile sends the free back to the first gate.

   For example, cudaFree of 2 MiB at 0x302000000 by a C program, no capture: the mode is STRICT. The core waits for the
   context's work, then the range is idle for every stream. In a capture of another thread the driver is asked first, by a
   probe of 1 byte, whether it would allow a free. If it does, the block joins the put-off ones until that capture ends. */
#ifndef SG_FREE_H
#define SG_FREE_H

#include "core/core.h"
#include "track/request.h"

/* cuMemFree of an address that sg_core_owns(). Returns the program's answer: CUDA_ERROR_INVALID_VALUE where no live block
   begins there. Between sg_enter() and sg_leave(). */
CUresult sg_memory_free(struct sg_core *core, CUdeviceptr address, const struct sg_request *request);

/* cuMemFree of an address that is the driver's, for callers that order their own work. Not between sg_enter() and
   sg_leave(); waits as sg_memory_wait_cross_device(). */
CUresult sg_memory_free_passthrough(CUdeviceptr address, const struct sg_request *request);

#endif
