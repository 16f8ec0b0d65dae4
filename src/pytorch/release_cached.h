/* Memory that goes back to the driver: old blocks above a threshold, oversize blocks, or all that is free. Only a block that is
   its whole segment can go.

   The *age* of a free block is the number of searches of its kind since it was freed. An *oversize* block has
   max_split_size bytes or more: it is never split, so it may wait long for a request of its size.

   Examples:
     garbage collection, threshold 0.5 of 100 MiB. Three segments of 20 MiB are free, and the first was used again since.
       A request of 30 MiB finds none large enough. Reserved 60 is above 50, so the two that are older than the mean age
       go: 40 MiB. The new segment makes 50 MiB.
     max_split_size_mb:50 on a card of 200 MiB. Free are 60 and 80 MiB. A request of 100 MiB is refused by the card, since
       140 are held; the largest oversize blocks go until 100 MiB are back: both.
     a card of 100 MiB, 60 free and 30 in use. A request of 70 MiB is refused, all that is free goes, and it fits. */
#ifndef SG_RELEASE_CACHED_H
#define SG_RELEASE_CACHED_H

#include "caching_state.h"

/* Garbage collection: above the threshold, gives back whole large blocks that are older than the mean, until enough is back
   or none is left. PyTorch's garbage_collect_cached_blocks(). */
void torch_collect(struct sg_torch *torch);
/* Gives free oversize blocks of a pool back for a request of `bytes`; false where they are not enough. PyTorch's
   release_available_cached_blocks(). */
bool torch_release_oversize(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes);
/* Gives back all that is free, of all streams or of one. The first waits for all events before. */
void torch_release_all(struct sg_torch *torch);
void torch_release_stream(struct sg_torch *torch, struct torch_stream *stream);

#endif
