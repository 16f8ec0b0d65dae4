/* Pins: pages that somebody else knows by address, and that therefore never move.

   For example, a program exports a block of 3 MiB by IPC, in pages of 2 MiB. Both pages are pinned, and `usage.pinned` grows
   by 4 MiB. A second export of the block changes nothing. */
#ifndef SG_CORE_STATE_PINS_H
#define SG_CORE_STATE_PINS_H

#include "core/state/device.h"

/* Pages of a region may not move any more. Under `lock`. */
enum { SG_PIN_REGION_SHIFT = 32 }; /* of the region in the record of a pin */
void sg_device_pin_locked(struct sg_device *device, struct sg_region *region, uint32_t first, uint32_t pages)
    SG_REQUIRES(lock);

#endif
