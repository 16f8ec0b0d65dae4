/* Memory that programs take from the driver beside ours: from its pools, and as physical allocations. It stays the
   driver's own, but must not run out because of what we hold idle. */
#include <stdbool.h>
#include <stddef.h>

#include "captures.h"
#include "hooks.h"
#include "life.h"
#include "memory.h"

/* Whether idle memory was given back to a driver that has just run out, so that asking it again can help. */
static bool make_room(CUresult result)
{
    /* What is pending may not be asked about while a capture is live. */
    if (result != CUDA_ERROR_OUT_OF_MEMORY || sg_thread_inside() || sg_life_over() || sg_captures_live())
        return false;
    struct sg_core *core = sg_begin();
    if (!core)
        return false;
    size_t given = 0;
    sg_memory_settle(core);
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        given += sg_core_trim(core, device, 0);
    sg_end();
    return given > 0;
}

#define RETRIED(name, arguments)                      \
    CUresult result = sg_real()->name arguments;      \
    return make_room(result) ? sg_real()->name arguments : result

CUresult cuMemAllocAsync(CUdeviceptr *ret, size_t bytes, CUstream stream)
{
    RETRIED(cuMemAllocAsync, (ret, bytes, stream));
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ret, size_t bytes, CUstream stream)
{
    RETRIED(cuMemAllocAsync_ptsz, (ret, bytes, stream));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ret, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    RETRIED(cuMemAllocFromPoolAsync, (ret, bytes, pool, stream));
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ret, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    RETRIED(cuMemAllocFromPoolAsync_ptsz, (ret, bytes, pool, stream));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    RETRIED(cuMemCreate, (ret, bytes, prop, flags));
}
