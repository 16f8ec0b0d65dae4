/* How much of a device may be held, while the process runs.

   For example, a card of 24 GiB whose configuration says 20: sg_core_set_limit() of 30 GiB returns 20 GiB, and of 10 GiB
   returns 10. Pages that are held beyond 10 GiB go back when the next allocation grows. */
#ifndef SG_CORE_CAPACITY_H
#define SG_CORE_CAPACITY_H

#include "core/core_types.h"

/* From here on at most `bytes` may be held on `device`, and never more than the configuration says. What is held
   beyond that stays until it is given back. Returns what is in force; 0 where the device cannot be served. */
uint64_t sg_core_set_limit(struct sg_core *core, int device, uint64_t bytes);

/* What may be held of the device now; 0 for one never used. And whether that is less than the whole of it. */
uint64_t sg_core_limit(struct sg_core *core, int device);
bool sg_core_is_limited(struct sg_core *core, int device);

#endif
