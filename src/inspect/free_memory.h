/* Free memory as cuMemGetInfo says it.

   For example, the driver has 1 GiB left of a card of 24 GiB, and 3 GiB of our pages are idle. The answer is 4 GiB. */
#ifndef SG_FREE_MEMORY_H
#define SG_FREE_MEMORY_H

#include "core/core.h"

/* Changes the driver's answer to cuMemGetInfo, in bytes, into ours: idle pages count as free, within the limit. It
   may ask the driver about fences, because memory whose work is complete would be free natively. */
void sg_core_mem_info(struct sg_core *core, int device, size_t *free_bytes, size_t *total_bytes);

/* True if there is memory that nobody holds and that sg_core_mem_info() leaves out, because its work is not known to
   be complete. */
bool sg_core_awaits(struct sg_core *core, int device);

/* True if some was freed after a helper thread has begun to wait for all work, so that it needs another wait of that kind. */
bool sg_core_awaits_another(struct sg_core *core, int device);

#endif
