/* The report of a failed allocation, as text: its cause, and what holds the memory. */
#ifndef SG_OOM_TEXT_H
#define SG_OOM_TEXT_H

#include "inspect/oom_cause.h"

/* The text block of an out-of-memory (docs/memory.md), for the most recent failure on `device`; lines end in
   newlines. The first begins "segalloc: out of memory on device N: short by SIZE". `around` may be NULL. Returns the
   length as snprintf does. */
size_t sg_core_oom_text(struct sg_core *core, int device, const struct sg_oom_around *around, char *buffer, size_t size);

#endif
