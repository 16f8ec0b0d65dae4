/* What of a device is not ours. Plans reckon with it in steps of 1/SG_PRESSURE_STEPS, so that a change of others by a
   few bytes is no event. The observer has it to the byte, by category: a replay on a smaller card takes it from there.

   An example. A card of 8 GiB, ours hold 1 GiB, the driver says that 4 GiB are in use. The layer above knows of 2 GiB by
   cudaMallocAsync. The remaining 1 GiB is SEGALLOC_OUTSIDE_OTHER. */
#ifndef SG_CORE_STATE_OUTSIDE_BYTES_H
#define SG_CORE_STATE_OUTSIDE_BYTES_H

#include "core/state/device.h"

/* Asks the driver how much of the device is not ours, and notes it. Holds `grow`. */
void sg_device_ask_outside_growing(struct sg_device *device) SG_REQUIRES(grow);

/* Asks the driver, and notes the answer for the observer alone. Nothing is decided by it. `current`: a context of the device
   is; without one, only what calls of this process have taken is known. Holds `grow`. */
void sg_device_show_outside_growing(struct sg_device *device, bool current) SG_REQUIRES(grow);

/* The same of a device that is not ready, and that nothing of ours is on. Holds `setup`. There is an observer. */
void sg_core_show_outside_in_setup(struct sg_core *core, int ordinal, bool current) SG_REQUIRES(setup);

/* Notes how much of the device others use. */
void sg_device_note_outside_locked(struct sg_device *device, uint64_t bytes) SG_REQUIRES(lock);

#endif
