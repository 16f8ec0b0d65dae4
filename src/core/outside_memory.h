/* What is held of a device by calls that the core does not serve, as the layer above tells of it.

   For example, the program gets 2 GiB by cudaMallocAsync: the hook counts the call by sg_core_count_outside(), and
   sg_core_note_outside() has the observer told of 2 GiB. */
#ifndef SG_CORE_OUTSIDE_MEMORY_H
#define SG_CORE_OUTSIDE_MEMORY_H

#include "core/core_types.h"

/* Counts an allocation by a call that the core does not serve. The device need not be ready, nor have a context. */
void sg_core_count_outside(struct sg_core *core, int device);

/* Notes what is held of `device` by calls that the core does not serve: for the observer alone. `current`: a context of the
   device is, and says how much others hold. Without one that is as it was. Asks the driver, and takes `grow` or `setup`. */
void sg_core_note_outside(struct sg_core *core, int device, bool current);

#endif
