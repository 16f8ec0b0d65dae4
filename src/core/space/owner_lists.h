/* Regions whose free ranges belong to several streams: the lists by owner, and what each page comes after.

   Nouns. The *owner* of free memory is the slot of the stream that it was allocated for; 0 is nobody. `after` says of
   a page what all that is free in it comes after.

   Why: with one owner none of this is needed, and most programs have one. How: lists are made when a second owner
   comes. An owner for whose lists there is no host memory shares `common`. Limits: `after` knows one time a page for
   all owners.

   For example, stream 1 frees the first half of page 7 at time 100, stream 2 the second half at time 140. Then
   `after` of page 7 is both slots and 140. Stream 2 frees the whole page later, at time 200: it is slot 2 and 200. */
#ifndef SG_CORE_SPACE_OWNER_LISTS_H
#define SG_CORE_SPACE_OWNER_LISTS_H

#include "core/space/region.h"

/* Makes the lists of one more owner, 1,056 bytes of host memory. Without that memory it returns `common`, and the
   owner's ranges go there for good. */
struct sg_lists *sg_region_make_lists_locked(struct sg_region *region, uint32_t owner) SG_REQUIRES(lock);

/* Puts every free range into a list, because the region has a second owner from here on. Once in a region's life. */
void sg_region_make_listed_locked(struct sg_region *region) SG_REQUIRES(lock);

/* Notes that [begin, begin + size), in units, has become free after the work of `after`. Each page that it touches
   then comes after that too. A page that lies inside as a whole forgets what it came after before. The last user of
   all of it was ordered after its earlier users. */
void sg_region_note_after_locked(struct sg_region *region, uint32_t begin, uint32_t size, struct sg_after after)
    SG_REQUIRES(lock);

/* Joins neighbours that could not be joined before their work was complete. It looks at every free range, so it does
   so only where the clocks have changed since the last time. False: they have not, or the region has one owner. */
bool sg_region_coalesce_completed_locked(struct sg_region *region) SG_REQUIRES(lock);

#endif
