/* The end of the work that came before the free of a guarded block.

   How. An event is recorded over each context, since any of them may use the block. The block is over once all have passed,
   or their contexts have gone. A helper thread waits for all contexts where the driver has no such event (before CUDA
   12.5), or where there are more than 8. Blocks that were freed before it began are over when it returns.

   Why numbers. Blocks are freed one after the other, and the work before the free of one is before the free of each later one
   too. So a number says of all blocks up to it that they are over.

   For example, a block is freed as number 12, with two contexts. Both get an event. The first has passed at the next
   allocation, the second is gone with its context later: then the block is over. */
#ifndef SG_GUARD_WAIT_H
#define SG_GUARD_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "check/guard_table.h"

/* A TAKEN block is freed from here on. Records the events, unless a capture is active; or with `is_over` none, because there
   is no work to wait for. */
void sg_guard_wait_begins(struct sg_guard *guard, bool is_over);

/* True if the work before the free of a TAKEN block is over. No wait. Records events that could not be before. */
bool sg_guard_wait_ended(struct sg_guard *guard);

/* True if that was found of the free of that number, and of all before it. */
bool sg_guard_wait_is_over(uint64_t number);

/* A context has gone, and its events with it. */
void sg_guard_wait_without(CUcontext context);

#endif
