/* Uses of blocks by other streams. When such a block is freed, an event is recorded in each of the streams. The block is free
   once all of these are complete. */
#ifndef SG_STREAM_USES_H
#define SG_STREAM_USES_H

#include "caching_state.h"

void torch_events_defer(struct sg_torch *torch, struct sg_torch_block *block);
void torch_events_poll(struct sg_torch *torch);
void torch_events_wait(struct sg_torch *torch);
void torch_events_free(struct sg_torch *torch);

#endif
