/* Work of ours on the GPU: where it may be given, and where it has failed.

   For example, stream 7 of context C is to fill a block. sg_work_enter(C) gives the lane of C and keeps captures from
   beginning, sg_work_stream() the handle of stream 7, and sg_work_leave() lets captures begin again. */
#ifndef SG_CHECK_WORK_H
#define SG_CHECK_WORK_H

#include <stdbool.h>

#include "check/samples.h"
#include "core/core.h"

/* True if a call of the driver succeeded. From an error that stays nothing more is asked of it. */
bool sg_work_went_well(CUresult result);

/* The lane of the current context, which is `context`, with no capture active and none to begin until sg_work_leave().
   NULL, and no sg_work_leave(): there is none. */
struct sg_lane *sg_work_enter(CUcontext context);
void sg_work_leave(void);

/* The same, where nothing is counted as left out. */
struct sg_lane *sg_work_try(CUcontext context);

/* True if a stream has nothing to do, and the legacy stream neither. The next step of a blocking stream would come after
   that one's work. Then a wait for work of ours on it is a short one. False too while a wait of that kind is in vain. */
bool sg_work_is_idle(CUstream stream);

/* True if work of ours on a stream of `context` never has to wait for the program. Either no stream may wait for the program (held.h), or
   this one is idle. */
bool sg_work_may(CUcontext context, CUstream stream);

/* True if a stream is one of `context`, and may be given work by this thread; *ret is its handle. */
bool sg_work_stream(struct sg_core *core, int device, sg_slot slot, CUcontext context, CUstream *ret);

/* Counts what is not looked at because a stream is given no work of ours. */
void sg_work_has_no_stream(void);

#endif
