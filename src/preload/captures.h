/* Live stream captures: while there is one, nothing may be waited for or queried, and growing needs a relaxed
   thread. */
#ifndef SG_CAPTURES_H
#define SG_CAPTURES_H

#include <stdbool.h>

#include "memory.h"

bool sg_captures_live(void);

/* While a capture is live: keeps a free for its end and answers what the driver would: CUDA_ERROR_INVALID_VALUE for
   what is not the start of a live block, or was given already. */
CUresult sg_captures_park(struct sg_core *core, CUdeviceptr address, const struct sg_origin *origin);

/* Lets this thread allocate during captures; returns whether there is anything for sg_captures_restore(). */
bool sg_captures_relax(CUstreamCaptureMode *ret_mode);
void sg_captures_restore(CUstreamCaptureMode *mode);

#endif
