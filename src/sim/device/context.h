/* Contexts: primary and created. A context is never freed, only emptied, so that a stale handle is recognised. */
#ifndef SIM_CONTEXT_H
#define SIM_CONTEXT_H

#include "hazard/order.h"
#include "sim.h"

enum { SIM_PEERS_MAX = SIM_DEVICES_MAX };

struct CUctx_st {
    struct sim_handle handle;
    uint64_t id;
    struct sim_device *device;
    CUcontext next; /* in sim.contexts */
    bool primary, alive;
    unsigned users; /* of a created one: who made it, and each cuCtxAttach */
    CUcontext parent; /* of a green context: the primary one, whose memory and modules it uses */
    CUgreenCtx green;
    unsigned flags;
    CUresult error; /* sticky: the context is lost once a piece of work failed */
    CUstream streams;       /* every stream of it, the two below included */
    CUstream legacy;
    CUstream marker;        /* carries no work of the program: what waits for all streams waits there */
    struct sim_deps *barriers; /* what work submitted from now on waits for (cuCtxWaitEvent) */
    struct sim_clock barrier_clock, gone_clock; /* what cuCtxWaitEvent says; work of streams that are gone */
    bool peers[SIM_PEERS_MAX]; /* devices whose memory it may use */
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache;
    CUsharedconfig shared_config;
    CUmodule modules;
};

/* Locked. The calling thread's context, which must be alive: CUDA_ERROR_INVALID_CONTEXT if there is none,
   CUDA_ERROR_CONTEXT_IS_DESTROYED if it was, or its sticky error. */
CUresult sim_context_current(CUcontext *ret);
/* Locked. As above for a handle; NULL means the current one. */
CUresult sim_context_get(CUcontext handle, CUcontext *ret);
/* Locked. The device's primary context if it is active, else NULL. */
CUcontext sim_context_primary(struct sim_device *device);

/* The context that memory and modules belong to. */
static inline CUcontext sim_context_root(CUcontext context)
{
    return context->parent ? context->parent : context;
}
/* Whether what is said of all work of `context` is said of `other` too: a primary context stands for the green ones. */
static inline bool sim_context_covers(CUcontext context, CUcontext other)
{
    return other == context || other->parent == context;
}
/* Locked. Takes the device's primary context up, makes it where it isn't there; gives it back, which waits where that
   was the last use. */
CUresult sim_context_retain(struct sim_device *device, CUcontext *ret);
void sim_context_release(struct sim_device *device);
/* Locked. A green context over the primary one; not current anywhere. */
CUresult sim_context_new_green(struct sim_device *device, CUcontext parent, CUgreenCtx green, CUcontext *ret);
/* Not locked. The context of a green one, NULL if there is no such. */
CUcontext sim_green_context(CUgreenCtx green);
/* Locked. Waits for its work. From here on calls that name one of its streams fail: the context is destroyed. */
void sim_context_detach(CUcontext green);

#endif
