/* The end of a context, announced from here to every table.

   Why. A context takes its streams, events, captures, graphs' blocks and plain memory with it. Each table has to drop its
   rows before the handle means another context. In one place a new table is not forgotten.

   For example, context 0x5500 ends with two streams, one of them captured, and 300 MiB live. Its streams' slots go. The
   capture counts no more. The core drops the blocks, gives the pages back, and serves again if an error of this context had
   stopped it. */
#ifndef SG_CONTEXT_END_H
#define SG_CONTEXT_END_H

#include <stdint.h>

#include "core/core.h"

/* The driver has ended the context. Nothing happens where another thread has announced that. `core`: as the call began, NULL
   if there was none. `id`: from sg_contexts_begin_ending(). No lock is held. */
void sg_context_gone(struct sg_core *core, CUcontext context, uint64_t id);

#endif
