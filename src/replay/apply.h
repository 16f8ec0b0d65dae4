/* Events that a replay brings to a core in place of the driver and of other processes.

   In a program the core finds these out itself: it queries fences, asks the driver how much others hold, measures what
   calls cost. A replay has no GPU to ask, so the records of the trace say it. The functions work on the inside of a core,
   which calls none of them.

   Example: a record PIN of device 0 with id 0x200000007 and size 3. Pages 7, 8 and 9 of region 2 may not move from here
   on. The recorded program gave their memory to somebody who remembers it, such as a network card. */
#ifndef SG_APPLY_H
#define SG_APPLY_H

#include "core/core.h"

/* Applies a record of what is not the core's to decide; other kinds do nothing. Takes the device's lock. A device that does
   not exist yet is made for COST and PEERS alone, which come as a device starts.

     DONE            the oldest free that waits for all work of the device takes effect
     MARK            fences were recorded on the slots of `id`, up to the time `size`
     PRESSURE        others hold `size` bytes of the device
     MERGE           what is free is joined, as sg_core_mem_info() does before it counts it
     COST            the cost of the driver call `id`: ns a call in the upper half of `size`, ns a handle in the lower
     PEERS           the devices of `size`, a bit each, have access
     PIN             pages may not move
     CONTEXT_GONE    the context `id` has ended, and its fixed segments with it */
void sg_core_apply(struct sg_core *core, int device, const struct segalloc_trace_record *record);

#endif
