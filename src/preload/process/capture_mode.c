/* The exchange of a thread's mode and back. Where the driver has no such call, nothing is exchanged, and growing waits
   for the capture's end. */
#include "process/capture_mode.h"

#include "process/process.h"

bool sg_capture_mode_relax(CUstreamCaptureMode *ret_mode)
{
    const struct sg_driver *driver = sg_process_driver();
    *ret_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return driver->exchange_capture_mode && driver->exchange_capture_mode(ret_mode) == CUDA_SUCCESS;
}

void sg_capture_mode_restore(CUstreamCaptureMode *mode)
{
    sg_process_driver()->exchange_capture_mode(mode);
}
