/* The place of a thread, both by its stack and by its phase.

   For example, a thread in train.py:50 within the range "forward" allocates. Site 12 and phase 3 are noted, and its
   next record in the trace has both. */
#ifndef SG_NOTE_H
#define SG_NOTE_H

struct sg_thread;

/* Notes in `self->place` where this thread is: the number of its stack (sites.h), and the phase that the program is in
   (phases.h). Its next allocation belongs there. For a thread inside a call of ours (process.h), where sites are on. */
void sg_sites_note(struct sg_thread *self);

#endif
