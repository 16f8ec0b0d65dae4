/* The trace's word of memory that the core does not serve. */
#ifndef SG_OUTSIDE_TRACE_H
#define SG_OUTSIDE_TRACE_H

#include <stdbool.h>

#include "track/held_outside.h"

/* True if a trace is written, or will be. */
bool sg_outside_traced(void);

/* A call has taken such memory, or given some back: the trace says what is held now. `starts`: the call may be the first
   that the process asks memory by, so the core is made. Nothing is asked while a capture is active: what comes next says
   it then. Any thread, no lock held. */
void sg_outside_changed(bool starts);

/* A call of the program's has taken such memory: counted where statistics or a trace are written, and noted as above. */
void sg_outside_took(void);

/* For a thread that is inside, with the core, where a context of the device is current. */
struct sg_core;
void sg_outside_note(struct sg_core *core, int device);

/* The host has waited: pools may have given memory back. */
static inline void sg_outside_waited(void)
{
    if (__builtin_expect(atomic_load_explicit(&sg_outside_any, memory_order_relaxed), false))
        sg_outside_changed(false);
}

#endif
