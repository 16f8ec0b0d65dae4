/* Memory of a device that is held by calls which the core does not serve, as the layer above notes it.

   Nouns. *Outside* memory is all that anybody uses of a device and the core does not hold. A *noted* amount is known
   to the observer, and decides nothing.

   Why it is noted: cudaMallocAsync's pools, managed memory and a program's own cuMemCreate take memory that an
   allocation here will lack. A report must name them, and a replay on a smaller card must leave room for them.
   state/outside_bytes.h says how they are divided.

   For example, the program gets 2 GiB by cudaMallocAsync: the hook counts the call by sg_core_count_outside(), and
   sg_core_note_outside() has the observer told of 2 GiB. */
#ifndef SG_CORE_OUTSIDE_MEMORY_H
#define SG_CORE_OUTSIDE_MEMORY_H

#include "core/core_types.h"

/* Counts an allocation by a call that the core does not serve. The device need not be ready, nor have a context. */
void sg_core_count_outside(struct sg_core *core, int device);

/* Notes memory of `device` that is held by calls which the core does not serve: for the observer alone. `current`: a
   context of the device is current, so the driver can say how much others hold. Else that stays as it was. Asks the
   driver, and takes `grow`, or `setup` if the device is not ready. */
void sg_core_note_outside(struct sg_core *core, int device, bool current);

/* The end of calls for memory, the core's own too. None of these makes the device ready. */

/* Notes and counts a call for `bytes` (0: not known) that the core does not serve, and that the driver has refused for want
   of memory. sg_core_oom_text() then tells of it. */
void sg_core_refused_outside(struct sg_core *core, int device, enum segalloc_outside by, uint64_t bytes);

/* Counts an allocation on `device` that was refused and will not be made good: the core counts refusals only, since
   what a program does about one is not known then. */
void sg_core_failed(struct sg_core *core, int device);

/* Notes in the trace what became of the calling thread's refused allocation, where no allocation shows it. */
void sg_core_settled(struct sg_core *core, int device, enum segalloc_settled how, size_t bytes);

#endif
