/* Operations of a recorded trace that dropped the core's lock, so that other threads went on: allocations that nothing
   free served, frees of huge blocks, trims. The core is asked for each on a thread of its own, which stands still at
   every turn (struct sg_replay) until the turn's record comes. One thread runs at a time, so what comes out depends on
   the trace alone. An allocation that nothing interrupted costs no thread.

   The core's records are compared with the trace. Where they differ, the trace is of other rules, or part of it is
   missing. From there on every operation is played at once, as in an imported trace. So nothing ever waits for a record
   that does not come. */
#ifndef SG_INTERLEAVER_H
#define SG_INTERLEAVER_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger_driver.h"
#include "core/core.h"

struct sg_interleaver;

/* For the calling thread's core, which must be made with what these return. NULL: no memory. The card is borrowed; what
   the recorded driver refused is in the trace, so it refuses nothing by itself. */
struct sg_interleaver *sg_interleaver_new(struct sg_ledger *card);
const struct sg_driver *sg_interleaver_driver(const struct sg_interleaver *slow);
struct sg_event_sink sg_interleaver_sink(struct sg_interleaver *slow);
extern const struct sg_replay sg_interleaver_replay;

/* There are no more records: brings what is under way to its end, wherever the trace has left it. Before the core
   goes. */
void sg_interleaver_end(struct sg_interleaver *slow);

/* After the core has gone. */
void sg_interleaver_delete(struct sg_interleaver *slow);

enum sg_interleaver_kind { SG_SLOW_ALLOCATION, SG_SLOW_FREE, SG_SLOW_TRIM };

struct sg_interleaver_call {
    enum sg_interleaver_kind kind;
    struct sg_core *core;
    int device;
    uint64_t bytes;      /* of an allocation; to keep, of a trim */
    CUdeviceptr address; /* of a free */
    struct sg_tag tag;
};

/* The operation of the record's thread begins with this record. False: no memory. */
bool sg_interleaver_begin(struct sg_interleaver *slow, const struct sg_interleaver_call *call,
    const struct segalloc_trace_record *record);

/* The next record of a thread. SG_SLOW_NONE: it has nothing under way, and the caller plays the record. ENDED: with an
   allocation, the address of which is *ret, 0 where it failed. */
enum sg_interleaver_state { SG_SLOW_NONE, SG_SLOW_GOES_ON, SG_SLOW_ENDED };
enum sg_interleaver_state sg_interleaver_next(struct sg_interleaver *slow, const struct segalloc_trace_record *record,
    CUdeviceptr *ret);

/* The caller is about to ask the core for what this record says, all of which happens in one section. */
void sg_interleaver_expect(struct sg_interleaver *slow, const struct segalloc_trace_record *record);

/* Anything else happens now: what is under way gets as far as the trace has said. */
void sg_interleaver_catch_up(struct sg_interleaver *slow);

/* Whether the core's records differ from the trace. */
bool sg_interleaver_has_diverged(const struct sg_interleaver *slow);

#endif
