/* The contexts of the process as they come, end and are gone, and the access of devices to each other's memory.

   Why: frees wait for contexts, and what a context had is free once it is gone. How: a context is announced when it comes,
   when it may end, and when it has ended. Limits: one that the list has no room for makes all waits ask the driver.

   For example, a program creates a second context on device 0 and frees a block of the first one. The free waits for the
   first, and the block is pending for what the second was given before. */
#ifndef SG_CORE_CONTEXTS_H
#define SG_CORE_CONTEXTS_H

#include "core/core_types.h"

/* A context of `device` exists (created, or primary retained); strict and event frees must cover it. Of one that is
   known it costs no lock. */
void sg_core_context_seen(struct sg_core *core, int device, CUcontext context);

/* A call that may end `context` is about to be made (`ending`), or has left it alive. After the return no new call
   names the context or its events. A call that is under way may still wait for it. What is pending on it stays so.
   Takes `asking`. sg_core_context_gone() says that the context has ended. */
void sg_core_context_ending(struct sg_core *core, CUcontext context, bool ending);

/* A context was destroyed or its primary reset: its blocks and pending frees are gone; no driver call is made for
   `context`. NULL: everything on the device is gone. */
void sg_core_context_gone(struct sg_core *core, int device, CUcontext context);

/* The context has ended. Removes an entry that sg_core_context_seen() made too late, after sg_core_context_gone(). */
void sg_core_context_forget(struct sg_core *core, CUcontext context);

/* cuCtxEnablePeerAccess: memory of `device` must be accessible from `peer`, now and later. */
CUresult sg_core_peer_access(struct sg_core *core, int device, int peer, bool enable);

#endif
