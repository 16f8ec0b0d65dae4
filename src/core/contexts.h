/* The contexts of the process as they come, end and are gone, and the access of devices to each other's memory.

   Nouns. A context is *seen* when it comes, *ending* while a call is under way that may end it, and *gone*
   afterwards. A *peer* is a device that has access to another's memory.

   Why: frees wait for contexts, and the blocks and streams of a context are nobody's once it is gone. Memory that is
   mapped outlives its context, unlike that of cuMemAlloc, so the end of a context is carried out here.

   How: a context is announced when it comes, when it may end, and when it has ended. While it is ending, no new call
   names it. Limits: the list has room for SG_CONTEXTS_MAX; one more than that makes fences useless, and frees wait
   instead.

   For example, a program creates a second context on device 0 and frees a block of the first one. The free waits for
   the first, and the block is pending for the work that the second was given before. When the second ends, the block
   is free without a question to the driver. */
#ifndef SG_CORE_CONTEXTS_H
#define SG_CORE_CONTEXTS_H

#include "core/core_types.h"

/* Notes that a context of `device` exists, created or primary: strict and event frees must cover it. Costs no lock if
   it is known. Else takes `setup`. */
void sg_core_context_seen(struct sg_core *core, int device, CUcontext context);

/* Notes that a call which may end `context` is about to be made (`ending`), or has left it alive. After the return no
   new call names the context or its events. A call that is under way may still wait for it. Memory that is pending on
   it stays so. Takes `setup`, then `asking` of each device. */
void sg_core_context_ending(struct sg_core *core, CUcontext context, bool ending);

/* Notes that a context was destroyed, or its primary reset: its blocks are free, and so is all that waited for it
   alone. NULL: everything on the device is gone. The driver is not called. */
void sg_core_context_gone(struct sg_core *core, int device, CUcontext context);

/* Removes the entry of a context that has ended, where sg_core_context_seen() made it too late, after
   sg_core_context_gone(). */
void sg_core_context_forget(struct sg_core *core, CUcontext context);

/* Makes the memory of `device` accessible from `peer`, now and later, as cuCtxEnablePeerAccess does. With `enable`
   false new pages are not accessible any more. Returns the first error of the driver. Takes `grow`. */
CUresult sg_core_peer_access(struct sg_core *core, int device, int peer, bool enable);

#endif
