/* Memory of a device that the allocator has not served: by category, with names. */
#ifndef SG_OUTSIDE_H
#define SG_OUTSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "segalloc/trace_format.h"

/* Bytes by category. */
struct sg_outside {
    uint64_t bytes[SEGALLOC_OUTSIDE_COUNT];
};

/* The name in JSON, and what a row says after the bytes. Constant texts. */
const char *sg_outside_key(enum segalloc_outside what);
const char *sg_outside_call(enum segalloc_outside what);

/* All of it. */
uint64_t sg_outside_sum(const struct sg_outside *outside);

/* What cannot leave the device while the program needs it: without pages of managed memory, which the driver moves to
   the host where memory is short, and without what pools give back at a wait, which the library makes then. Source: CUDA
   C++ Programming Guide, "Unified Memory Programming" (oversubscription), "Stream Ordered Memory Allocator" (physical page
   caching). */
uint64_t sg_outside_stays(const struct sg_outside *outside);

/* Whether how much there is at a moment depends on how far the GPU has come. It does where pools or graphs have got some back
   since `before`, which is in the order of a stream. It does for managed memory, which work brings to the device. */
bool sg_outside_lags(const struct sg_outside *before, const struct sg_outside *now);

#endif
