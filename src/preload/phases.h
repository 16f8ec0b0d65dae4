/* What the program is doing, by its own word: segalloc_mark(), segalloc_phase_push(), ranges of NVTX. On by `sites`. */
#ifndef SG_PHASES_H
#define SG_PHASES_H

#include <stdint.h>

struct sg_thread;

/* The phase of this thread, which is defined in the trace from then on; 0: none. That of the ranges it has opened, or
   where it has none what another thread opened last: threads of a backward pass have none of their own. */
uint32_t sg_phases_note(struct sg_thread *self);

#endif
