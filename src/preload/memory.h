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

/* What a call through the runtime by a module of this kind (enum sg_caller) is; and what the core is told of it. */
struct sg_origin sg_memory_origin(int caller);
struct sg_tag sg_memory_tag(const struct sg_origin *origin, CUcontext context);

/* cuMemAlloc on the current context's device; what we can't serve is asked of the driver. */
CUresult sg_memory_alloc(struct sg_core *core, size_t bytes, const struct sg_origin *origin, CUdeviceptr *ret);

/* cuMemFree of an address that sg_core_owns(). */
CUresult sg_memory_free(struct sg_core *core, CUdeviceptr address, const struct sg_origin *origin);

#endif
