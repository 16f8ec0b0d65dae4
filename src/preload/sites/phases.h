/* The program's phases, as it names them: segalloc_mark(), segalloc_phase_push(), ranges of NVTX. On by `sites`. */
#ifndef SG_PHASES_H
#define SG_PHASES_H

#include <stddef.h>
#include <stdint.h>

struct sg_thread;

/* The phase of this thread, which is defined in the trace from then on; 0: none. It is that of the ranges that the
   thread has opened. A thread without one, as in a backward pass, has the phase that another thread opened last. */
uint32_t sg_phases_note(struct sg_thread *self);

/* Writes the phase that a thread has opened or gone back to last, the outermost first: "step 6, forward"; "": there is none.
   Takes no lock. */
void sg_phases_latest(char *text, size_t size);

#endif
