/* Preloaded, on a simulator whose synchronisation fails for good with a launch failure. The first free says so, as the
   driver's would. Later ones do nothing and succeed, and allocations are the driver's, until the context has been reset.
   Then all of the card is there for the next one. */
#include <stdlib.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

int main(void)
{
    CUdeviceptr first, second;
    void *address;
    EXPECT(cudaMalloc(&address, 100) == cudaSuccess);
    EXPECT(cuMemAlloc_v2(&first, 1 << 20) == CUDA_SUCCESS && cuMemAlloc_v2(&second, 1 << 20) == CUDA_SUCCESS);
    EXPECT(cuMemFree_v2(first) == CUDA_ERROR_LAUNCH_FAILED);
    EXPECT(cuMemFree_v2(first) == CUDA_SUCCESS && cuMemFree_v2(second) == CUDA_SUCCESS);
    EXPECT(cudaFree(address) == cudaSuccess);
    uint64_t allocs = statistic(0, "allocs");
    cuMemAlloc_v2(&first, 1 << 20);
    EXPECT(statistic(0, "allocs") == allocs);
    EXPECT(cudaDeviceReset() == cudaSuccess);
    EXPECT(cudaMalloc(&address, (size_t)4090 << 20) == cudaSuccess);
    EXPECT(statistic(0, "allocs") == allocs + 1);
    return failures != 0;
}
