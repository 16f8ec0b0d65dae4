/* Live stream captures: while there is one, nothing may be waited for or queried, and growing needs a relaxed
   thread. */
#ifndef SG_CAPTURES_H
#define SG_CAPTURES_H

#include <stdbool.h>

#include "memory.h"

bool sg_captures_live(void);

/* Whether a stream is being captured. Asks the driver, while a capture is live only. */
bool sg_captures_capturing(CUstream stream, bool per_thread);

/* Calls that a capture could be ruined by, or could begin beside, are made between these two: they keep captures from
   beginning, and streams from joining them, until the driver has answered. Nothing may be waited for meanwhile. */
void sg_captures_hold(void);
void sg_captures_unhold(void);

/* Around a call by which a stream may begin to be captured. */
void sg_captures_joining(void);
void sg_captures_joined(void);

/* A stream was destroyed, with this result: that drops its capture. Returns the result. */
CUresult sg_captures_destroyed(CUresult result, CUstream stream);

/* While a capture is live: keeps a free for its end and answers what the driver would: CUDA_ERROR_INVALID_VALUE for
   what is not the start of a live block, or was given already. */
CUresult sg_captures_park(struct sg_core *core, CUdeviceptr address, const struct sg_origin *origin);

/* Lets this thread allocate during captures; returns whether there is anything for sg_captures_restore(). */
bool sg_captures_relax(CUstreamCaptureMode *ret_mode);
void sg_captures_restore(CUstreamCaptureMode *mode);

#endif
