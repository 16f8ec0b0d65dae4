/* Pins: pages whose memory somebody else remembers, and that therefore never move nor go back.

   Nouns. A *pinned* page keeps its address and its memory. A pin is *asked* for by a caller, unlike that of a page
   with an alias, which ends.

   Why: a page that was exported, registered with a network card or captured in a graph may be used without a call
   that names it. How: a bit for each page, for good. It may be set before the page has memory, and holds for the
   memory to come. Limits: there is no unpinning, because no call says that the last user has forgotten the memory.

   For example, a program exports a block of 3 MiB by IPC, in pages of 2 MiB. Both pages are pinned, and
   `usage.pinned` grows by 4 MiB. A second export of the block changes nothing. */
#ifndef SG_CORE_STATE_PINS_H
#define SG_CORE_STATE_PINS_H

#include "core/state/device.h"

enum { SG_PIN_REGION_SHIFT = 32 }; /* of the region in the record of a pin; the page is below it */

/* Pins `pages` pages of a region from page `first` on, and emits that if any was not pinned yet. */
void sg_device_pin_locked(struct sg_device *device, struct sg_region *region, uint32_t first, uint32_t pages)
    SG_REQUIRES(lock);

#endif
