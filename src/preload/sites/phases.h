/* Phases of the program, as it names them: segalloc_mark(), segalloc_phase_push(), ranges of NVTX. On by `sites`.

   Nouns. A *phase* is a name within another phase. A *range* is a phase that a thread opens and closes.

   How. Each thread has a stack of 16 ranges; deeper ones count as the sixteenth. A thread without a range, as in a
   backward pass, has the phase that another thread opened last.

   For example, segalloc_mark("step 6") and then a range "forward": allocations have the phase "step 6, forward". The
   range is closed: they have "step 6". */
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
