/* The calls that a thread may make while a stream is captured.

   Why. During a capture in global mode the driver refuses calls that may synchronise, in every thread; cuMemCreate is
   one. Such a call ruins the capture. A thread may exchange its mode for a relaxed one
   (cuThreadExchangeStreamCaptureMode). The library does so around its own calls, because none of them is part of the
   program's capture.

   For example, thread A captures; thread B's cudaMalloc of 64 MiB needs new pages. B relaxes, pages are created and
   mapped, B restores its mode: A's capture goes on. Without that, cuMemCreate would answer
   CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. */
#ifndef SG_CAPTURE_MODE_H
#define SG_CAPTURE_MODE_H

#include <stdbool.h>

#include "driver/cuda_abi.h"

/* Lets this thread allocate during captures; returns whether there is anything for sg_capture_mode_restore(). */
bool sg_capture_mode_relax(CUstreamCaptureMode *ret_mode);
void sg_capture_mode_restore(CUstreamCaptureMode *mode);

#endif
