/* A window: free memory of several owners, side by side, that one stream may use in one piece.

   Nouns. The *owner* of a free range is the stream that it was allocated for. Its *border* is where the next owner's
   begins. A page is *usable* for a stream that is ordered after all work on the free parts of it (`after`).

   Why: neighbours of different owners are no single range, so a look for one range misses what they hold together.
   How: ranges are walked in address order. A range that the stream can't use as a whole counts by its pages, which
   know better how old they are (`after`). The shortest window that holds the block is taken. Limits: the walk looks
   at every free range, so it comes after the quick looks only.

   For example, stream 1 wants 3 MiB. It owns 2 MiB free; behind them lie 2 MiB that stream 2 freed, after which
   stream 1 has come. No range holds 3 MiB, and the window of both has 4. */
#ifndef SG_CORE_SPACE_WINDOW_H
#define SG_CORE_SPACE_WINDOW_H

#include "core/space/region.h"

/* Takes `units` for the stream of `slot` out of the shortest window that holds them. Returns the block's extent; 0:
   there is no such window, or no extent is to be had. A region in which nothing ever had an owner has no windows, and
   is not walked. */
uint32_t sg_region_take_window_locked(struct sg_region *region, uint32_t units, sg_slot slot) SG_REQUIRES(lock);

#endif
