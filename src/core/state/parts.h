/* Parts: the memory of a page that lies in two places.

   Nouns. The *near* parts are pages of the device. The *far* part is one page of the host's memory, behind them. Why a page
   and not many: a block that lies there in part has its region to itself, as a huge block has. So no other block ever comes
   to stand on the far part, and it goes back as soon as the block is freed.

   How: the books have the page as one, and struct sg_parts beside it has the handles. Limits: a region with parts has one
   page. Its memory moves nowhere.

   For example, 7 GiB lack 300 MiB, on pages of 4 MiB. 1,717 near parts and a far one of 300 MiB are mapped one after the
   other. `reserved` grows by 7 GiB and `overflow` by 300 MiB. */
#ifndef SG_CORE_STATE_PARTS_H
#define SG_CORE_STATE_PARTS_H

#include "core/state/device.h"

/* Parts without handles so far, with room for so many. NULL: no host memory. */
struct sg_parts *sg_parts_new(uint32_t room);
/* Frees the books of parts whose memory was given back; NULL is fine. */
void sg_parts_free(struct sg_parts *parts);

/* Takes the parts of a region's page into the books, or out of them as its memory goes. They are the region's from the
   first on, and the caller's again after the second. */
void sg_parts_keep_locked(struct sg_device *device, struct sg_region *region, struct sg_parts *parts) SG_REQUIRES(lock);
void sg_parts_drop_locked(struct sg_device *device, struct sg_region *region) SG_REQUIRES(lock);

#endif
