/* Allocation and free as the driver's hooks and the public interface share them. All between sg_begin() and
   sg_end(). */
#ifndef SG_MEMORY_H
#define SG_MEMORY_H

#include "core.h"

/* Where a call comes from, for the core. */
struct sg_origin {
    CUstream stream;
    bool has_stream;
    bool torch;        /* PyTorch in direct or pluggable mode: it orders its own work */
    bool stream_order; /* the interface itself says that the free is ordered after `stream` */
};

/* cuMemAlloc on the current context's device; what we can't serve is asked of the driver. */
CUresult sg_memory_alloc(struct sg_core *core, size_t bytes, const struct sg_origin *origin, CUdeviceptr *ret);

/* cuMemFree of an address that sg_core_owns(). */
CUresult sg_memory_free(struct sg_core *core, CUdeviceptr address, const struct sg_origin *origin);

#endif
