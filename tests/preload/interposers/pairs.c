/* The program under them: pairs through the runtime, through functions of the driver that dlsym answers, and through those
   that it is linked with. Then it allocates until there is no more, and prints how often that went well. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../programs/runtime.h"
#include "cuda_proto.h"

enum { PAIRS = 10, BLOCKS = 200, BLOCK_BYTES = 8 << 20 };

int main(void)
{
    static void *blocks[BLOCKS];
    CUresult (*take)(CUdeviceptr *, size_t), (*give)(CUdeviceptr);
    void *handle = dlopen("libcuda.so.1", RTLD_NOW), *symbol = dlsym(handle, "cuMemAlloc_v2");
    memcpy(&take, &symbol, sizeof take);
    symbol = dlsym(handle, "cuMemFree_v2");
    memcpy(&give, &symbol, sizeof give);
    int good[3] = {0}, count = 0;
    for (int i = 0; i < PAIRS; i++) {
        void *address;
        CUdeviceptr own;
        good[0] += cudaMalloc(&address, 1 << 20) == cudaSuccess && cudaFree(address) == cudaSuccess;
        good[1] += take(&own, 1 << 20) == CUDA_SUCCESS && give(own) == CUDA_SUCCESS;
        good[2] += cuMemAlloc_v2(&own, 1 << 20) == CUDA_SUCCESS && cuMemFree_v2(own) == CUDA_SUCCESS;
    }
    while (count < BLOCKS && cudaMalloc(&blocks[count], BLOCK_BYTES) == cudaSuccess)
        count++;
    for (int i = 0; i < count; i++)
        good[0] += cudaFree(blocks[i]) == cudaSuccess;
    printf("runtime %d, dlsym %d, linked %d, blocks %d\n", good[0], good[1], good[2], count);
    return 0;
}
