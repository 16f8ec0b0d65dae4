/* Memory of a device that is not ours, and how it is noted.

   Nouns. *Outside* is all that is in use of a device and not held by the core. Other processes have it, contexts, or
   calls of this process that the core does not serve. A *step* is 1/SG_PRESSURE_STEPS (1/256) of the device.

   Why two accuracies: plans reckon in steps, because a few bytes more are no reason to plan anew, and each change is
   a record. The observer has it to the byte and by category, because a replay on a smaller card needs that. Limits:
   the driver is asked when the core grows, so between two growths a change goes unnoticed.

   For example, a card of 8 GiB has steps of 32 MiB. The core holds 1 GiB, and the driver says that 4 GiB are in use,
   so 3 are outside: 96 steps. The layer above knows of 2 GiB by cudaMallocAsync. The remaining 1 GiB is
   SEGALLOC_OUTSIDE_OTHER. */
#ifndef SG_CORE_STATE_OUTSIDE_BYTES_H
#define SG_CORE_STATE_OUTSIDE_BYTES_H

#include "core/state/device.h"

/* Asks the driver how much of the device is outside, and notes it for plans and for the observer. */
void sg_device_ask_outside_growing(struct sg_device *device) SG_REQUIRES(grow);

/* Asks the driver, and notes the answer for the observer alone. Nothing is decided by it. `current`: a context of the
   device is current. Without one the driver can't say how much is used, so only memory of this process's calls is
   known. */
void sg_device_show_outside_growing(struct sg_device *device, bool current) SG_REQUIRES(grow);

/* Asks and notes for the observer too, for a device that is not ready, so nothing of it is the core's. The caller knows
   that there is an observer. */
void sg_core_show_outside_in_setup(struct sg_core *core, int ordinal, bool current) SG_REQUIRES(setup);

/* Notes that `bytes` of the device are outside, which plans go by from here on. Any change also clears the memory of
   the driver's last refusal: with other neighbours a page may be had again. */
void sg_device_note_outside_locked(struct sg_device *device, uint64_t bytes) SG_REQUIRES(lock);

#endif
