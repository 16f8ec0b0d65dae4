/* Allocation and free as the driver's hooks and the public interface share them. All between sg_enter() and
   sg_leave(), where nothing else is said. */
#ifndef SG_REQUESTS_H
#define SG_REQUESTS_H

#include <stdatomic.h>

#include "core.h"

/* Where a call comes from, for the core. */
struct sg_request {
    CUstream stream;
    bool has_stream;
    bool torch;        /* PyTorch in direct or pluggable mode: it orders its own work */
    bool pluggable;    /* PyTorch, which may or may not tell of recorded streams */
    bool named;        /* `stream` is the caller's word, and other streams that use the block are recorded with us */
    bool stream_order; /* the interface itself says that the free is a step of `stream`, after all use of the block */
    bool is_complete;  /* of a free: all that used the block is known to be done */
    bool was_deferred; /* of a free: put off by us before, so that nobody is to wait in it */
    bool driver_allowed; /* of a free: the driver allowed it beside a capture, in the thread that made it, which need
                          not be the one that carries it out; `stream` may be gone by then */
};

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

/* Has events recorded for what was freed so far, on all devices; not while a capture is live. Not between sg_enter()
   and sg_leave(). */
void sg_memory_fence(void);

/* Frees what was put off for a capture or a graph that is over by now: before the core is asked for memory. */
void sg_memory_run_deferred(struct sg_core *core);

/* Whether there is any of that, which is counted by captures.c and graph_blocks.c. No lock, anywhere. */
extern atomic_int sg_captures_deferred __attribute__((visibility("hidden"))),
    sg_graphs_gone __attribute__((visibility("hidden")));
static inline bool sg_memory_has_deferred(void)
{
    return atomic_load_explicit(&sg_captures_deferred, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&sg_graphs_gone, memory_order_relaxed) > 0;
}

/* PyTorch's pluggable allocator tells of recorded streams. */
void sg_memory_torch_records(void);

/* PyTorch allocates by its pluggable interface. */
void sg_memory_torch_plugged(void);

/* Whether somebody frees by the order of streams without recording the streams that used a block. Observations by
   the host matter only then. */
bool sg_memory_guesses(void);

/* Starts to follow the order of streams, where the configuration leaves room for it: a caller names its streams. */
void sg_memory_follow(void);

#endif
