/* What a program does to memory that it maps itself. Memory of ours is mapped piece by piece too, but for the program
   it is cuMemAlloc's, of which these calls know nothing: to the driver they would succeed, and take pages from under
   other blocks. */
#include <stddef.h>

#include "hooks.h"
#include "life.h"

static bool is_ours(CUdeviceptr address)
{
    return !sg_thread_inside() && sg_life_owns(address);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    return is_ours(address) ? CUDA_ERROR_INVALID_VALUE : sg_real()->cuMemUnmap(address, bytes);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    return is_ours(address) ? CUDA_ERROR_INVALID_VALUE : sg_real()->cuMemSetAccess(address, bytes, access, count);
}
