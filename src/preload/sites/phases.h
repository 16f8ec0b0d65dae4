/* What the program is doing, by its own word: segalloc_mark(), segalloc_phase_push(), ranges of NVTX. On by `sites`. */
#ifndef SG_PHASES_H
#define SG_PHASES_H

#include <stdint.h>

struct sg_thread;

/* The phase of this thread, which is defined in the trace from then on; 0: none. It is that of the ranges that the
   thread has opened. A thread without one, as in a backward pass, has the phase that another thread opened last. */
uint32_t sg_phases_note(struct sg_thread *self);

#endif
