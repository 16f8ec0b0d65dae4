/* The part of a replay that plays work. Rows about work and its order go to the card's queue. The core is called as the
   preload library would call it, and so decides as in the program. */
#ifndef SG_RUN_AHEAD_H
#define SG_RUN_AHEAD_H

#include <stdint.h>

#include "ledger_driver.h"
#include "core/core.h"
#include "segalloc/trace_format.h"

struct sg_ahead;

/* `run_ahead`: work is complete once so many more allocations have been made. The core and the card are borrowed; the
   card gets a queue. NULL: no host memory. */
struct sg_ahead *sg_ahead_new(struct sg_core *core, struct sg_ledger *card, uint64_t run_ahead);

/* Before the card goes, which then has no queue. */
void sg_ahead_delete(struct sg_ahead *ahead);

/* The stream of a record as the core is given it: fills `stream`, `has_stream` and `slot`. */
void sg_ahead_tag(struct sg_ahead *ahead, int device, uint32_t stream, struct sg_tag *tag);

/* An allocation on this stream was tried. As long as the trace has shown no row about work, work that touches it
   follows. */
void sg_ahead_allocated(struct sg_ahead *ahead, int device, uint32_t stream);

/* A row about work: LAUNCH to DEVICE_SYNC. */
void sg_ahead_work(struct sg_ahead *ahead, int device, const struct segalloc_trace_record *record);

#endif
