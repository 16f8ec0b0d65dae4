/* Stands in for a CUDA runtime: allocates by the driver, and counts its calls. */
#include "cuda_proto.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int cudaMalloc(void **ret, size_t bytes);
EXPORT int cudaFree(void *address);
EXPORT int cudaGetLastError(void);
EXPORT int cudaRuntimeGetVersion(int *ret);
EXPORT int stand_in_calls(void);

static int calls;

int cudaMalloc(void **ret, size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result = cuMemAlloc_v2(&address, bytes);
    calls++;
    *ret = (void *)(uintptr_t)address;
    return (int)result;
}

int cudaFree(void *address)
{
    calls++;
    return (int)cuMemFree_v2((CUdeviceptr)(uintptr_t)address);
}

int cudaGetLastError(void)
{
    return 0;
}

int cudaRuntimeGetVersion(int *ret)
{
    *ret = 13000;
    return 0;
}

int stand_in_calls(void)
{
    return calls;
}
