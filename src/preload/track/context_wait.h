/* Waits for a context that another thread may end meanwhile. */
#ifndef SG_CONTEXT_WAIT_H
#define SG_CONTEXT_WAIT_H

#include "driver/cuda_abi.h"

/* Waits as sg_worker_run() for the work of a context, for it to end if that is under way. */
CUresult sg_context_wait(CUcontext context);

#endif
