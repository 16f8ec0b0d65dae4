/* Contexts: primary and created, and which of them is current on a thread. A context is never freed, only emptied, so that a
   stale handle is recognised. `api/context_life.h` makes and ends them. */
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
    uint64_t fault; /* the address at which it did; 0: not known */
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

/* The thread's contexts, of which the last is the current one; NULL entries were pushed by the program. */
enum { SIM_CURRENT_MAX = 64 };
struct sim_current {
    CUcontext at[SIM_CURRENT_MAX];
    unsigned depth;
};
extern _Thread_local struct sim_current sim_current;

/* Locked. The calling thread's context, which must be alive: CUDA_ERROR_INVALID_CONTEXT if there is none,
   CUDA_ERROR_CONTEXT_IS_DESTROYED if it was, or its sticky error. */
CUresult sim_context_current(CUcontext *ret);
/* Locked. The context of a handle, with these errors; NULL means the current one. */
CUresult sim_context_get(CUcontext handle, CUcontext *ret);
/* Locked. The device's primary context if it is active, else NULL. */
CUcontext sim_context_primary(struct sim_device *device);

/* The context that memory and modules belong to. */
static inline CUcontext sim_context_root(CUcontext context)
{
    return context->parent ? context->parent : context;
}
/* True where all work of `context` includes that of `other`: a primary context stands for the green ones. */
static inline bool sim_context_covers(CUcontext context, CUcontext other)
{
    return other == context || other->parent == context;
}

#endif
