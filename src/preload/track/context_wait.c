/* The errand: pin, make current, wait, and undo in reverse order. It looks once more whether anybody still waits, for
   the wait in the driver can't be given up. */
#include "track/context_wait.h"

#include "process/worker_thread.h"
#include "track/captures.h"
#include "track/context_pins.h"

/* The errand. A context that can't be pinned has ended, and its work with it. */
static CUresult context_wait(void *context)
{
    int use = sg_context_pin_current(context);
    if (use < 0)
        return CUDA_SUCCESS; /* its work has gone with it */
    CUresult result = sg_worker_given_up() ? CUDA_ERROR_NOT_READY : sg_captures_wait_aside();
    sg_context_unpin_current(use);
    return result;
}

CUresult sg_context_wait(CUcontext context)
{
    return sg_worker_run(context_wait, context);
}
