/* The short way through cudaMalloc and cudaFree: what the cache can answer, without the runtime and without the hooks of
   the driver's calls.

   Taken only where the result can't differ from the long way's: the caller's own runtime is 12.0 or later (older ones
   set the device lazily, in their first call), this thread's current context is the one that it had when a call went the
   long way through that same runtime, it is its device's primary context, no capture is live and the core answers.
   Everything else, and every error, goes the long way, so that the runtime's error slot is right. */
#ifndef SG_QUICK_H
#define SG_QUICK_H

#include <stdbool.h>
#include <stddef.h>

#include "callers.h"

/* True: done, as by a call that succeeded. False: nothing has happened. */
bool sg_quick_malloc(const struct sg_module *module, void **ret, size_t bytes);
bool sg_quick_free(const struct sg_module *module, void *address);

/* An allocation through the module's runtime went the long way and succeeded. */
void sg_quick_learn(const struct sg_module *module);

/* Whether a runtime is new enough; `version` is its cudaRuntimeGetVersion, NULL if it has none. */
bool sg_quick_runtime(void *version);

#endif
