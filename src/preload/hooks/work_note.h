/* Work that was given to a stream, noted by a hook after the driver's call.

   Why the mark comes first. The core lets others come after work that it has noted. So whoever comes after this work by
   then comes after its mark, and no mark is missed by those who are in order.

   For example, a kernel is launched on stream 5. `check` writes its mark behind it, and then the core notes that stream 5
   was given work. */
#ifndef SG_WORK_NOTE_H
#define SG_WORK_NOTE_H

#include "check/held.h"
#include "check/marks.h"
#include "check/state.h"
#include "track/streams.h"

static inline void sg_work_note(CUstream stream, bool per_thread)
{
    if (sg_check_on())
        sg_marks_worked(stream, per_thread);
    sg_submitted(stream, per_thread);
    if (sg_check_on())
        sg_marks_noted();
}

/* Around a call that gives a stream work which may wait for the program; `check` gives it none of its own meanwhile. */
static inline int sg_work_holds(CUstream stream, bool per_thread)
{
    return sg_check_on() ? sg_held_begin(stream, per_thread) : -1;
}
static inline void sg_work_is_given(int held)
{
    if (held >= 0)
        sg_held_end(held);
}

/* The work that was noted last used memory at `address`, which may be ours. `check` is to know of each,
   since it looks for those that the core has forgotten. */
static inline void sg_work_used(CUdeviceptr address)
{
    if (sg_check_on())
        sg_marks_used(address);
}

#endif
