/* The driver as the core calls it: a table whose calls ruin no capture.

   Why. The core knows nothing of captures. It asks events, records them and waits, and during a capture each of that
   may be forbidden.

   For example, a capture is active and the core asks whether an event has completed. The call is made in relaxed mode,
   for the event is ours and not captured. The core wants to wait for a context: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
   comes back, and the free is put off. */
#ifndef SG_CAPTURE_SAFE_DRIVER_H
#define SG_CAPTURE_SAFE_DRIVER_H

#include "driver/driver.h"

/* A driver for the core that asks, records and waits only where no capture can be ruined by it, and says
   CUDA_ERROR_NOT_READY or CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED instead. A wait for an event is one in slices, and
   given up with CUDA_ERROR_NOT_READY after `wait_limit` of the configuration. A wait for a context that another thread
   ends is one for its end. */
void sg_captures_make_driver_safe(const struct sg_driver *driver, struct sg_driver *ret);

/* Waits for the current context as the core does by that driver, once there is a core. */
CUresult sg_captures_synchronize(void);

#endif
