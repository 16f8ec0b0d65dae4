/* The contexts that are alive, with their devices. They are followed from the start of the process, because a core
   that is created later must know of all of them. */
#ifndef SG_CONTEXTS_H
#define SG_CONTEXTS_H

#include "core.h"

/* Tells a new core of every context there is, and of peer access; what it knows already it may hear again. Holding no
   lock of ours. */
void sg_contexts_tell(struct sg_core *core);

/* The calling thread's current context and its device. The driver's error, or CUDA_ERROR_INVALID_CONTEXT when there is
   none. Between sg_begin() and sg_end(). */
CUresult sg_contexts_current(struct sg_core *core, CUcontext *ret_context, int *ret_device);

/* Whether a context is the primary one of its device. */
bool sg_contexts_primary(CUcontext context);

#endif
