/* The part of a replay that plays work: launches, events, waits and synchronisations of an imported trace.

   *Work* is a piece that a stream was given. Rows about work and its order go to the card's queue (lag_queue.h), which says
   when a piece is complete. The core is called as the preload library would call it: about each submission, each wait and
   each synchronisation. So it decides as in the program, with fences, pending frees and orders of streams.

   Example, K = 100, two streams:
     LAUNCH        stream 1         the queue has a piece, complete after 100 allocations; the core's slot 1 was given work
     EVENT_RECORD  stream 1, id 7   recording 7: stream 1 up to here, by the queue and as the core knows it
     STREAM_WAIT   stream 2, id 7   stream 2 comes after recording 7 in both: it may use what stream 1 freed before
     EVENT_SYNC    id 7             the host waited: the piece is complete now, and the core is called with that

   Limits: 127 streams are followed; all further ones share a number, and their memory is reused later. */
#ifndef SG_RUN_AHEAD_H
#define SG_RUN_AHEAD_H

#include <stdint.h>

#include "ledger_driver.h"
#include "core/core.h"
#include "segalloc/trace_format.h"

struct sg_ahead;

/* Begins to play work on a core and a card, both borrowed; the card gets a queue. `run_ahead` is K: work is complete once
   so many more allocations have been made. NULL: no host memory. */
struct sg_ahead *sg_ahead_new(struct sg_core *core, struct sg_ledger *card, uint64_t run_ahead);

/* Ends it; the card has no queue then. Before the card goes. NULL is fine. */
void sg_ahead_delete(struct sg_ahead *ahead);

/* The stream of a record as the core is given it: fills `stream`, `has_stream` and `slot`. */
void sg_ahead_tag(struct sg_ahead *ahead, int device, uint32_t stream, struct sg_tag *tag);

/* Counts an allocation on this stream, be it served or not. While the trace has shown no row about work, a piece of work
   that touches the block is assumed to follow. */
void sg_ahead_allocated(struct sg_ahead *ahead, int device, uint32_t stream);

/* Plays a row about work: LAUNCH to DEVICE_SYNC. A recording that is not known any more orders nothing. */
void sg_ahead_work(struct sg_ahead *ahead, int device, const struct segalloc_trace_record *record);

#endif
