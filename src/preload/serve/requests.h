/* Allocation and free as the driver's hooks and the public interface share them. All between sg_enter() and
   sg_leave(), where nothing else is said. */
#ifndef SG_REQUESTS_H
#define SG_REQUESTS_H

#include "track/deferred_frees.h"

/* The origin of a call through the runtime by a module of this kind (enum sg_caller); and the tag for the core. */
struct sg_request sg_memory_origin(int caller);
struct sg_tag sg_memory_tag(struct sg_core *core, const struct sg_request *request, CUcontext context, int device);

/* cuMemAlloc on the current context's device; what we can't serve is asked of the driver. */
CUresult sg_memory_alloc(struct sg_core *core, size_t bytes, const struct sg_request *request, CUdeviceptr *ret);

/* An allocation for a module that needs the driver's own memory. The driver is asked as the program asked, and once
   more where idle memory of ours makes room. */
CUresult sg_memory_passthrough(struct sg_core *core, size_t bytes, CUdeviceptr *ret);

/* Goes on where the core has answered `result`, an error. Others are asked for memory, then the driver; an
   allocation that nobody serves is reported. `ends`: sg_captures_ends() before the core was asked. Returns the
   program's answer. */
CUresult sg_memory_not_served(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, unsigned ends,
    CUresult result, CUdeviceptr *ret);

/* cuMemFree of an address that sg_core_owns(). */
CUresult sg_memory_free(struct sg_core *core, CUdeviceptr address, const struct sg_request *request);

/* cuMemFree of an address that is the driver's, for callers that order their own work. Not between sg_enter() and
   sg_leave(); waits as sg_memory_wait_cross_device(). */
CUresult sg_memory_free_passthrough(CUdeviceptr address, const struct sg_request *request);

/* A block is used on `stream` too (0: the legacy one): it is not given to others before that work is done. */
CUresult sg_memory_record_stream(struct sg_core *core, CUdeviceptr address, CUstream stream);

/* Memory that the driver serves is used on `stream`. sg_memory_served_cross_device(): on a stream of another context
   than its own, which later frees by callers that record streams take into account. No lock. */
void sg_memory_record_served(CUdeviceptr address, CUstream stream);
void sg_memory_served_cross_device(void);

/* Before the driver frees memory of its own for a caller that records streams. Its free waits for the context whose
   memory it is, and not for work that the caller has queued on another device. Waits for all work of all devices,
   once there is such work. Not between sg_enter() and sg_leave(). */
void sg_memory_wait_cross_device(void);

#endif
