/* How much of a device may be held, while the process runs.

   The *capacity* of a device is its memory, or less where the configuration or the program sets a limit. Why it may
   be exceeded for a while: memory that is in use can't be taken away. So a lower limit holds for later requests.

   For example, a card of 24 GiB whose configuration says 20: sg_core_set_limit() of 30 GiB returns 20 GiB, and of 10
   GiB returns 10. Idle pages beyond 10 GiB go back when the next allocation grows. */
#ifndef SG_CORE_CAPACITY_H
#define SG_CORE_CAPACITY_H

#include "core/core_types.h"

/* Lets at most `bytes` be held on `device` from here on, and never more than the configuration says. Returns the
   limit in force, in bytes; 0: the device cannot be served. Takes `lock`, and `setup` on first use of the device. */
uint64_t sg_core_set_limit(struct sg_core *core, int device, uint64_t bytes);

/* The capacity in bytes; 0 for a device that was never used. And true if it is less than the whole device. No lock. */
uint64_t sg_core_limit(struct sg_core *core, int device);
bool sg_core_is_limited(struct sg_core *core, int device);

/* True if a driver's total, bytes, is a quota of a device that has `whole`. Then it is less by more than drivers differ. No
   lock. */
bool sg_core_is_quota(uint64_t total, uint64_t whole);

#endif
