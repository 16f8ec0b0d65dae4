/* What a replay says in place of the driver and of other processes. It works on the inside of a core, which calls none of
   it. */
#ifndef SG_APPLY_H
#define SG_APPLY_H

#include "core/core.h"

/* Does what a record of a trace says, of what is not the core's to decide. CONTEXT_GONE: its `id` is the context. MERGE
   joins what is free, as sg_core_mem_info() does before it counts it. DONE: the oldest free that waits for all work of
   the device takes effect. */
void sg_core_apply(struct sg_core *core, int device, const struct segalloc_trace_record *record);

#endif
