/* Which calls this thread may make while a stream is captured. */
#ifndef SG_CAPTURE_MODE_H
#define SG_CAPTURE_MODE_H

#include <stdbool.h>

#include "driver/cuda_abi.h"

/* Lets this thread allocate during captures; returns whether there is anything for sg_capture_mode_restore(). */
bool sg_capture_mode_relax(CUstreamCaptureMode *ret_mode);
void sg_capture_mode_restore(CUstreamCaptureMode *mode);

#endif
