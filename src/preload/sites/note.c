/* The two halves of a thread's place, in the order in which a trace defines them. */
#include "sites/note.h"

#include "process/thread.h"
#include "sites/phases.h"
#include "sites/sites.h"

void sg_sites_note(struct sg_thread *self)
{
    sg_sites_note_stack(self);
    self->place.phase = sg_phases_note(self);
}
