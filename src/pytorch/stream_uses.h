/* Uses of blocks by other streams. When such a block is freed, an event is recorded in each of the streams. The block is free
   once all of these are complete.

   For example, a block of stream 1 was recorded on streams 2 and 3. Its free records an event on each; `allocated` falls at
   once, `active` does not. The next allocation of any stream asks both events. Stream 2's is complete, stream 3's is not:
   one event is left. An allocation later that is complete too, and the block goes into the pool of stream 1.

   Events of a stream complete in their order, so only the oldest of each stream is asked about. */
#ifndef SG_STREAM_USES_H
#define SG_STREAM_USES_H

#include "caching_state.h"

/* Defers a freed block until its streams are done. Without host memory for an event the host waits for it at once. */
void torch_events_defer(struct sg_torch *torch, struct sg_torch_block *block);
/* Asks events, and frees the blocks whose events are complete. Costs nothing where there are none. */
void torch_events_poll(struct sg_torch *torch);
/* Waits for all events, and frees their blocks. */
void torch_events_wait(struct sg_torch *torch);
/* Gives the host memory of events back; their blocks are left. */
void torch_events_free(struct sg_torch *torch);

#endif
