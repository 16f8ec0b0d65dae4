/* Memory of a device that is held by calls which the core does not serve, as the layer above notes it.

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

#endif
