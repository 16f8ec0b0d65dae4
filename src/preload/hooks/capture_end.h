/* The end of a stream capture, announced from here to every table.

   Why. While any capture is active, frees that would ruin it are put off, and spare blocks of its graph serve it again. Both
   end with the last capture.

   For example, a program captures on streams A and B and frees 64 MiB meanwhile. Both captures end. After the first nothing
   happens, because the other could still be ruined. After the second the spares are forgotten and the 64 MiB are freed. */
#ifndef SG_CAPTURE_END_H
#define SG_CAPTURE_END_H

#include <stdbool.h>

#include "driver/cuda_abi.h"

/* The capture that began on the stream has ended, by the driver's answer or with its stream. Not between sg_enter() and
   sg_leave(); no lock is held. */
void sg_capture_ended(CUstream stream, bool per_thread);

/* Frees what was put off, where no capture is active. Likewise. */
void sg_capture_run_deferred(void);

#endif
