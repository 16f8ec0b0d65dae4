/* Waits for a context that another thread may end meanwhile.

   Why. A wait for all work of a context may take long and must not ruin a capture, and the context may end during it.

   How. The wait is an errand of a thread of ours (worker_thread.h). It pins the context (context_pins.h), makes it
   current, and waits while no capture can begin.

   For example, a free waits for context A as another thread destroys A. The pin holds that thread back until the wait
   is over. Had the end come first, the pin would fail, and the wait succeeds at once: the work went with the context.
   */
#ifndef SG_CONTEXT_WAIT_H
#define SG_CONTEXT_WAIT_H

#include "driver/cuda_abi.h"

/* Waits as sg_worker_run() for the work of a context, for it to end if that is under way. */
CUresult sg_context_wait(CUcontext context);

#endif
