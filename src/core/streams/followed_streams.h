/* The order of streams, as callers note it for the clocks of order/stream_clock.h.

   Nouns. A *slot* is the index of a followed stream, 1 to 63. A stream's *clock* says, for each other stream, up to
   which time its later work is ordered after that one's. The *host* is the program's threads: a query or
   synchronisation that succeeds lets them observe that work is complete.

   Why the order of calls has rules: a clock that says too little delays reuse. One that says too much lets two
   streams use the same memory at once. So knowledge is read before the driver is called, and added after it
   succeeded:

      - an event's clock is what sg_core_clock() said *before* the driver was asked to record it, kept after it
        succeeded;
      - sg_core_ordered_after() and sg_core_completed() come *after* the driver's success, with the clock that the
        event had before the call, and not at all where the event was recorded anew meanwhile, or may have been by
        means that are not seen;
      - sg_core_slot_submitted() comes after a call that gave the stream work, before that call returns to the
        program.

   Limits. No call here calls the driver. Each takes the device's `lock` for a moment, but sg_core_slot_submitted(),
   which a launch can't wait for. A device that was never used, or slot 0, is nobody's: the call does nothing, and
   clocks are all zero.

   For example, cuEventRecord on stream 1 reads its clock at time 4, and keeps that with the event after success.
   cuStreamWaitEvent on stream 2 then joins it: entry 1 of stream 2's clock is 4. A block that stream 1 frees after
   its work of before 4 is stream 2's too from here on. */
#ifndef SG_CORE_STREAMS_FOLLOWED_STREAMS_H
#define SG_CORE_STREAMS_FOLLOWED_STREAMS_H

#include "core/core_types.h"

/* Notes that the stream is ordered by means that are not seen, from here on: it is untracked. */
void sg_core_slot_untracked_order(struct sg_core *core, int device, sg_slot slot);

/* Notes that the host has observed, or may observe at any time without a call, that the work of `clock` is complete.
   NULL: all that the device was given so far. The host may have passed blocks from before then to any stream. */
void sg_core_host_observed(struct sg_core *core, int device, const struct sg_vector_clock *clock);

/* Notes that the stream may have been given work. Takes no lock: it sets one bit, which the next reader of the clock
   clears. */
void sg_core_slot_submitted(struct sg_core *core, int device, sg_slot slot);

/* The same of work that is not the program's but the library's own: nobody else may be ordered after it, so it does not
   make the stream fresh. */
void sg_core_slot_upkeep(struct sg_core *core, int device, sg_slot slot);

/* True if the program has given the stream work after which nothing else is ordered yet: no event of it was recorded
   since, and the host has not asked about it. */
bool sg_core_slot_is_fresh(struct sg_core *core, int device, sg_slot slot);

/* Notes that others may come after all that the stream was given so far, by an event that gives no clock, or by the host. Slot 0: after what
   any stream of the device was given. */
void sg_core_shown(struct sg_core *core, int device, sg_slot slot);

/* Writes to *ret the stream of `slot`. False: it is destroyed, or the slot is nobody's. */
bool sg_core_slot_stream(struct sg_core *core, int device, sg_slot slot, struct sg_stream_id *ret);

/* Writes to *ret the clock of `slot`: all that its work from now on is ordered after, its own work so far included. */
void sg_core_clock(struct sg_core *core, int device, sg_slot slot, struct sg_vector_clock *ret);

/* Read before the driver is asked whether the stream has work left; valid if it has none. *ret_observed is for
   sg_core_host_observed(): the host has observed all of it. For sg_core_completed() the stream's own entry counts only
   up to *ret_done. A blocking stream is ordered after the legacy stream's work by its next step. If it was given
   nothing since, it is idle, and the legacy stream may be busy. */
void sg_core_idle_clock(struct sg_core *core, int device, sg_slot slot, struct sg_vector_clock *ret_observed,
    uint64_t *ret_done);

/* Writes to *ret all that a wait for a context covers: the latest of the clocks of its streams; NULL: of the
   device's. Entry 0 is set only if the context is the only one, since frees that wait for all work wait for all
   contexts. */
void sg_core_context_clock(struct sg_core *core, int device, CUcontext context, struct sg_vector_clock *ret);

/* Joins `clock` into the clock of `slot`: its work from now on is ordered after that. */
void sg_core_ordered_after(struct sg_core *core, int device, sg_slot slot, const struct sg_vector_clock *clock);

/* Notes that all work up to `clock` is complete. */
void sg_core_completed(struct sg_core *core, int device, const struct sg_vector_clock *clock);

#endif
