/* The public functions of callers that name their streams. */
#include <stddef.h>
#include <stdint.h>

#include "process/hooks.h"
#include "process/process.h"
#include "serve/requests.h"
#include "serve/fast_path.h"
#include "segalloc/segalloc.h"

void *segalloc_malloc_on(size_t bytes, void *stream)
{
    CUdeviceptr address = 0;
    CUresult result;
    if (!bytes)
        return NULL;
    if (sg_quick_malloc_on(bytes, stream, &address))
        return (void *)(uintptr_t)address;
    sg_memory_follow();
    struct sg_core *core = sg_begin_allocation();
    if (core) {
        const struct sg_origin origin = {.stream = stream, .has_stream = true, .named = true};
        result = sg_memory_alloc(core, bytes, &origin, &address);
        sg_quick_learn_named();
        sg_end();
    } else {
        result = sg_real()->cuMemAlloc_v2(&address, bytes);
    }
    return result == CUDA_SUCCESS ? (void *)(uintptr_t)address : NULL;
}

int segalloc_free(void *pointer)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    if (!address)
        return CUDA_SUCCESS;
    if (sg_quick_free_named(address))
        return CUDA_SUCCESS;
    const struct sg_origin origin = {.named = true};
    if (!sg_life_owns(address))
        return (int)sg_memory_free_passed(address, &origin);
    if (sg_life_over())
        return CUDA_SUCCESS;
    struct sg_core *core = sg_begin();
    if (!core)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sg_memory_free(core, address, &origin);
    sg_end();
    return (int)result;
}

int segalloc_record_stream(void *pointer, void *stream)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    if (sg_life_over())
        return CUDA_SUCCESS;
    if (!sg_life_owns(address)) {
        if (sg_life_driver())
            sg_memory_record_served(address, stream);
        return CUDA_SUCCESS;
    }
    struct sg_core *core = sg_begin();
    if (!core)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sg_memory_record_stream(core, address, stream);
    sg_end();
    return (int)result;
}

void segalloc_torch_record_stream(void *pointer, void *stream)
{
    sg_memory_torch_records();
    (void)segalloc_record_stream(pointer, stream);
}
