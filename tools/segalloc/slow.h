/* Allocations of a recorded trace that were under way while other threads went on: the core is asked for each on a
   thread of its own, which stands still in the driver wherever the recorded one was asked to wait. One thread runs at a
   time, so what comes out depends on the trace alone. An allocation that nothing interrupted costs no thread. */
#ifndef SG_SLOW_H
#define SG_SLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "card.h"
#include "core.h"

struct sg_slow;

/* For the calling thread's core, which must be made with this driver and this sink. `classic`: its segments are fixed.
   NULL: no memory. The card is borrowed. */
struct sg_slow *sg_slow_new(struct sg_card *card, bool classic);

/* Brings what is under way to its end. Before the core goes. */
void sg_slow_delete(struct sg_slow *slow);

const struct sg_driver *sg_slow_driver(const struct sg_slow *slow);
struct sg_event_sink sg_slow_sink(struct sg_slow *slow);

/* A SLOW_BEGIN of a trace's thread. False: no memory, or no thread to be had. */
bool sg_slow_begin(struct sg_slow *slow, struct sg_core *core, int device, const struct sg_tag *tag,
                   const struct segalloc_trace_record *record);

/* A SLOW_STEP. */
void sg_slow_step(struct sg_slow *slow, const struct segalloc_trace_record *record);

/* What a thread has under way is at its end, and whether it failed. False: there is nothing, or nothing interrupted it; the caller asks the
   core himself. Else *ret is the address, 0 where it failed. */
bool sg_slow_end(struct sg_slow *slow, uint16_t thread, bool failed, CUdeviceptr *ret);

/* Anything else happens now: what is under way gets as far as the trace has said. */
void sg_slow_catch_up(struct sg_slow *slow);

/* Something was learnt of the work on `device`: whoever waits for that looks again. */
void sg_slow_learnt(struct sg_slow *slow, int device);

/* Stands for asking the driver about work, in struct sg_core_params. */
bool sg_slow_ask(int device, bool wait);

/* Lets all that is under way finish, for what comes next needs the driver itself. */
void sg_slow_finish(struct sg_slow *slow);

#endif
