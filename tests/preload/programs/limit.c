/* Preloaded with limit:1GiB on a larger device: it is held to, before and after the first allocation, and reported. */
#include <stdlib.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

#define MIB ((size_t)1 << 20)

int main(void)
{
    size_t free_bytes, total, device_total;
    void *address;
    int visible = getenv("SEGALLOC_CONF") && strstr(getenv("SEGALLOC_CONF"), "limit_visible:True");
    EXPECT(cudaMemGetInfo(&free_bytes, &total) == cudaSuccess);
    EXPECT(free_bytes == 1024 * MIB && total == (visible ? 1024 * MIB : 4096 * MIB));
    EXPECT(cuDeviceTotalMem_v2(&device_total, 0) == CUDA_SUCCESS && device_total == total);
    EXPECT(cudaMalloc(&address, 2048 * MIB) == cudaErrorMemoryAllocation);
    EXPECT(cudaMalloc(&address, 900 * MIB) == cudaSuccess);
    EXPECT(cudaMemGetInfo(&free_bytes, &total) == cudaSuccess);
    EXPECT(free_bytes <= 124 * MIB && total == (visible ? 1024 * MIB : 4096 * MIB));
    void *rest;
    size_t all = free_bytes / (2 * MIB) * (2 * MIB);
    EXPECT(cudaMalloc(&rest, all) == cudaSuccess);
    EXPECT(cudaFree(rest) == cudaSuccess && cudaFree(address) == cudaSuccess);
    EXPECT(cudaMemGetInfo(&free_bytes, &total) == cudaSuccess && free_bytes >= 1000 * MIB);
    return failures != 0;
}
