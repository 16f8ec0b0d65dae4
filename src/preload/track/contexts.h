/* The contexts that are alive, with their devices. They are followed from the start of the process, because a core
   that is created later must know of all of them. */
#ifndef SG_CONTEXTS_H
#define SG_CONTEXTS_H

#include "core/core.h"

/* Announces every context there is, and peer access, to a new core; one that the core knows already may come again.
   Holding no lock of ours. */
void sg_contexts_announce_all(struct sg_core *core);

/* The calling thread's current context and its device. The driver's error, or CUDA_ERROR_INVALID_CONTEXT when there is
   none. Between sg_enter() and sg_leave(). */
CUresult sg_contexts_current(struct sg_core *core, CUcontext *ret_context, int *ret_device);

/* The context, where there is only one in the process; NULL: there are several, or none yet. No lock. */
CUcontext sg_contexts_only(void);

/* The device of any context; false: the driver doesn't know it. */
bool sg_contexts_device(CUcontext context, int *ret_device);

/* True if there are contexts of several devices. No lock. */
bool sg_contexts_devices(void);

/* The primary context of a device, as far as it was met; NULL. */
CUcontext sg_contexts_primary_of(int device);

/* True if waiting for this context is waiting for all that there is on its device. */
bool sg_contexts_stands_for_all(CUcontext context);

/* The context that was made of a green one; NULL if none was. */
CUcontext sg_contexts_of_green(CUgreenCtx green);

/* True if a context was made of a green one. */
bool sg_contexts_green(CUcontext context);

/* A context of the device that is alive, its primary one if it can be; NULL. */
CUcontext sg_contexts_any(int device);

/* True if a context is the primary one of its device. */
bool sg_contexts_primary(CUcontext context);

#endif
