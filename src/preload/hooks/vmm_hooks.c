/* Calls for memory that the program maps itself, where they name memory of ours. For the program that is
   cuMemAlloc's, which these calls refuse. To the driver it is mapped memory: they would succeed, and take pages from
   under other blocks. */
#include <stddef.h>

#include "process/hooks.h"
#include "process/process.h"

static bool is_ours(CUdeviceptr address)
{
    return !sg_thread_inside() && sg_process_owns(address);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    return is_ours(address) ? CUDA_ERROR_INVALID_VALUE : sg_real()->cuMemUnmap(address, bytes);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    return is_ours(address) ? CUDA_ERROR_INVALID_VALUE : sg_real()->cuMemSetAccess(address, bytes, access, count);
}
