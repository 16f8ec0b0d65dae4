/* The fast path through cudaMalloc and cudaFree, without the runtime and without the hooks of the driver's calls.
   Callers that name their streams have it too: what is known of thread and stream is kept.

   It is taken only where the result cannot differ from the slow path's:

      - the caller's own runtime is 12.0 or later; older ones set the device lazily, in their first call;
      - this thread's current context is the one that it had when a call took the slow path through that same runtime;
      - that context is its device's primary context, no capture is active, and the core answers.

   Everything else takes the slow path, and so does every error, so that the runtime's error slot is right. An
   allocation is asked for once only: its error is kept for the hook of the driver's call.

   For example, a loop allocates and frees 1 MiB. The first cudaMalloc takes the slow path; its success is noted with
   epoch 7. The second finds epoch 7, the same context and the same runtime, and calls the core. Another thread makes a
   context, the epoch is 8, and the third call goes the long way and notes epoch 8. */
#ifndef SG_FAST_PATH_H
#define SG_FAST_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "serve/callers.h"
#include "driver/cuda_abi.h"

/* True: done, as by a call that succeeded. False: go the long way; nothing has happened, or sg_fast_path_take_error()
   has the error. */
bool sg_fast_malloc(const struct sg_module *module, void **ret, size_t bytes);
bool sg_fast_free(const struct sg_module *module, void *address);

/* The error of an allocation that was tried on the fast path, returned once; CUDA_SUCCESS: none was. */
CUresult sg_fast_path_take_error(void);

/* An allocation through the module's runtime went the long way and succeeded. */
void sg_fast_path_prepare(const struct sg_module *module);

/* The fast path for segalloc_malloc_on() and segalloc_free(), which have no runtime that keeps errors. True: done;
   *ret is 0 where there is no memory. */
bool sg_fast_malloc_on(size_t bytes, CUstream stream, CUdeviceptr *ret);
bool sg_fast_free_on(CUdeviceptr address);

/* An allocation by a caller that names its streams went the long way. Between sg_enter() and sg_leave(). */
void sg_fast_path_prepare_streams(void);

/* True if a runtime is new enough; `version` is its cudaRuntimeGetVersion, NULL if it has none. */
bool sg_fast_path_allows(void *version);

#endif
