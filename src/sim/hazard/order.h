/* Happens-before between pieces of work: the hazard checker's model. Each stream has a slot, and a clock says for
   each slot up to which position its owner comes after. A stream's clock is that of its latest work. An event's clock is
   that of the work before its record. The host's clock is what the program has observed by a wait or a query. Completion
   that was not observed orders nothing. All of it is off unless SEGALLOC_SIM says "hazard".

   The program's threads count as one host: what one of them has observed, another may know. */
#ifndef SIM_ORDER_H
#define SIM_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

struct sim_work;

struct sim_clock {
    unsigned count;
    uint64_t *at; /* by slot */
};

/* A point of a slot. Positions of a slot grow for good, also when another stream takes it. */
struct sim_point {
    unsigned slot;
    uint64_t position;
};

/* Locked, here and below. Out of host memory the order is taken for granted: nothing is reported that is not so. */
void sim_clock_join(struct sim_clock *into, const struct sim_clock *from);
void sim_clock_clear(struct sim_clock *clock);
static inline bool sim_clock_covers(const struct sim_clock *clock, struct sim_point point)
{
    return point.slot < clock->count && clock->at[point.slot] >= point.position;
}

/* A stream takes part in the order from here on, and until all its work is over. */
void sim_order_stream_new(CUstream stream);
void sim_order_stream_closed(CUstream stream); /* by the program: its work is still its context's */
void sim_order_stream_end(CUstream stream);
/* `work` has just been given its position: it comes after what its stream, the legacy stream's rules, cuCtxWaitEvent
   and the host say. */
void sim_order_submitted(CUstream stream, struct sim_work *work);
struct sim_point sim_order_point(CUstream stream, uint64_t position);
/* The latest work of the stream, and with the legacy stream that of the blocking ones. */
void sim_order_stream(CUstream stream, struct sim_clock *ret);
void sim_order_context(CUcontext context, struct sim_clock *ret);
/* Work that is submitted to the stream, or to the context, from now on comes after `clock`. */
void sim_order_stream_after(CUstream stream, const struct sim_clock *clock);
void sim_order_context_after(CUcontext context, const struct sim_clock *clock);
/* The program knows that all this is complete. */
void sim_order_host_after(const struct sim_clock *clock);
const struct sim_clock *sim_order_host(void);

#endif
