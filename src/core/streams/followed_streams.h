/* The order of streams, as callers tell of it: all per device and under its lock, none across a driver call
   (sg_core_slot_gone() aside). Callers keep these rules, so that no wrong knowledge enters:

      - an event's clock is what sg_core_clock() said *before* the driver was asked to record it, kept after it
        succeeded;
      - sg_core_ordered_after() and sg_core_completed() come *after* the driver's success, with the clock that the
        event had before the call, and not at all where the event was recorded anew meanwhile, or may have been by
        means that are not seen;
      - sg_core_slot_submitted() comes after a call that gave the stream work, before that call returns to the
        program. */
#ifndef SG_CORE_STREAMS_FOLLOWED_STREAMS_H
#define SG_CORE_STREAMS_FOLLOWED_STREAMS_H

#include "core/core_types.h"

/* From here on the stream counts as ordered by means that are not seen. */
void sg_core_slot_untracked_order(struct sg_core *core, int device, sg_slot slot);

/* The host has observed, or may observe at any time without a call, that the work of `clock` is complete. NULL: all
   that the device was given so far. The host may pass blocks from before then to any stream. */
void sg_core_host_observed(struct sg_core *core, int device, const struct sg_vector_clock *clock);

/* The stream may have been given work. No lock. */
void sg_core_slot_submitted(struct sg_core *core, int device, sg_slot slot);

/* What everything submitted to `slot` from now on is ordered after, its own work so far included. */
void sg_core_clock(struct sg_core *core, int device, sg_slot slot, struct sg_vector_clock *ret);

/* Read before the driver is asked whether the stream has work left; valid if it has none. *ret_observed is for
   sg_core_host_observed(): the host has observed all of it. For sg_core_completed() the stream's own entry counts only
   up to *ret_done. A blocking stream is ordered after the legacy stream's work by its next step. If it was given
   nothing since, it is idle, and the legacy stream may be busy. */
void sg_core_idle_clock(struct sg_core *core, int device, sg_slot slot, struct sg_vector_clock *ret_observed,
    uint64_t *ret_done);

/* What everything submitted to any stream of a context from now on is ordered after; NULL: of the device. For calls
   that wait for all of them. */
void sg_core_context_clock(struct sg_core *core, int device, CUcontext context, struct sg_vector_clock *ret);

/* What `slot` is given from now on is ordered after `clock`. */
void sg_core_ordered_after(struct sg_core *core, int device, sg_slot slot, const struct sg_vector_clock *clock);

/* All up to `clock` is complete. */
void sg_core_completed(struct sg_core *core, int device, const struct sg_vector_clock *clock);

#endif
