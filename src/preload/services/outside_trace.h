/* Records in the trace about memory that the core does not serve.

   Why. Pools, graphs and libraries take memory too. A replay that knows the core's blocks alone would find a card large
   enough on which the run fails.

   For example, a library takes 200 MiB by cuMemCreate. The next record says 200 MiB outside. A rehearsal for an 8 GiB
   card has 7.8 GiB for the core from there on. */
#ifndef SG_OUTSIDE_TRACE_H
#define SG_OUTSIDE_TRACE_H

#include <stdbool.h>

#include "track/held_outside.h"

/* True if a trace is written, or will be. */
bool sg_outside_traced(void);

/* A call has taken such memory, or given some back: the trace says what is held now of these devices, a bit for each.
   0: of the current context's, and where there is none of all that anything is known of. `starts`: the call may be the first
   that the process asks memory by, so the core is made. It is noted in a capture too, and where the device has no context.
   Where it can't be, as in a signal handler within one of our calls, what comes next says it (sg_held_outside()).
   Any thread, no lock held.

   An example. With device 0 current, cuMemCreate takes 2 GiB of device 1, which has no context: the trace has 2 GiB of
   device 1, and nothing of device 0. */
void sg_outside_changed(uint64_t devices, bool starts);

/* A call of the program's has taken such memory: counted where statistics or a trace are written, and noted as above. */
void sg_outside_took(uint64_t devices);

/* The device of a stream, as a bit; 0: of the current context's, or not known. */
uint64_t sg_outside_stream_device(CUstream stream);

/* For a thread that is inside, with the core, where a context of the device is current. */
struct sg_core;
void sg_outside_note(struct sg_core *core, int device);

/* The host has waited: pools may have given memory back. */
static inline void sg_outside_waited(void)
{
    if (__builtin_expect(atomic_load_explicit(&sg_outside_any, memory_order_relaxed), false))
        sg_outside_changed(0, false);
}

#endif
