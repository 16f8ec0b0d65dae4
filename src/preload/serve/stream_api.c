/* The public functions of callers that name their streams (include/segalloc/segalloc.h). A caller that names streams
   frees by their order, so its first call makes order followed. */
#include <stddef.h>
#include <stdint.h>

#include "process/hooks.h"
#include "process/process.h"
#include "serve/alloc.h"
#include "serve/fast_path.h"
#include "segalloc/segalloc.h"
#include "serve/free.h"
#include "serve/used_streams.h"
#include "track/free_policy.h"
#include "track/streams.h"

/* NULL where there is no memory, as malloc() says it. The first call goes the long way and prepares the short one. */
void *segalloc_malloc_on(size_t bytes, void *stream)
{
    CUdeviceptr address = 0;
    CUresult result;
    if (!bytes)
        return NULL;
    if (sg_fast_malloc_on(bytes, stream, &address))
        return (void *)(uintptr_t)address;
    sg_follow_as_configured();
    struct sg_core *core = sg_enter_allocation();
    if (core) {
        const struct sg_request request = {.stream = stream, .has_stream = true, .named = true};
        result = sg_memory_alloc(core, bytes, &request, &address);
        sg_fast_path_prepare_streams();
        sg_leave();
    } else {
        result = sg_real()->cuMemAlloc_v2(&address, bytes);
    }
    return result == CUDA_SUCCESS ? (void *)(uintptr_t)address : NULL;
}

/* The result is a CUresult as int. NULL is freed as free() does it. */
int segalloc_free(void *pointer)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    if (!address)
        return CUDA_SUCCESS;
    if (sg_fast_free_on(address))
        return CUDA_SUCCESS;
    const struct sg_request request = {.named = true};
    if (!sg_process_owns(address))
        return (int)sg_memory_free_passthrough(address, &request);
    if (sg_process_over())
        return CUDA_SUCCESS;
    struct sg_core *core = sg_enter();
    if (!core)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sg_memory_free(core, address, &request);
    sg_leave();
    return (int)result;
}

/* For the driver's memory only the fact counts that a stream of another context uses it. */
int segalloc_record_stream(void *pointer, void *stream)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    if (sg_process_over())
        return CUDA_SUCCESS;
    if (!sg_process_owns(address)) {
        if (sg_process_driver())
            sg_memory_record_served(address, stream);
        return CUDA_SUCCESS;
    }
    struct sg_core *core = sg_enter();
    if (!core)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sg_memory_record_stream(core, address, stream);
    sg_leave();
    return (int)result;
}

void segalloc_torch_record_stream(void *pointer, void *stream)
{
    sg_memory_record_stream_hooked();
    if (!pointer)
        return;
    sg_memory_torch_records();
    (void)segalloc_record_stream(pointer, stream);
}
