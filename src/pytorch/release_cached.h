/* Memory that goes back to the driver: old blocks above a threshold, oversize blocks, or all that is free. Only a block that is
   its whole segment can go. */
#ifndef SG_RELEASE_CACHED_H
#define SG_RELEASE_CACHED_H

#include "caching_state.h"

void torch_collect(struct sg_torch *torch); /* garbage collection */
/* Free oversize blocks for a request of `bytes`; false where they are not enough. */
bool torch_release_oversize(struct sg_torch *torch, struct torch_pool *pool, uint64_t bytes);
/* Waits for all events first. */
void torch_release_all(struct sg_torch *torch);
void torch_release_stream(struct sg_torch *torch, struct torch_stream *stream);

#endif
