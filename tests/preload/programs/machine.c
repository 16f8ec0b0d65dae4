/* Preloaded, on the simulator: all devices of a machine are full at once. What is printed: what was allocated on each.
   Usage: machine DEVICES [MIB], the least that must be had on each. */
#include <stdbool.h>
#include <stdlib.h>

#include "cuda_proto.h"
#include "served.h"

enum { DEVICES = 16 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

/* Blocks of many sizes until no smallest one is left to be had. */
static size_t fill(uint64_t seed)
{
    size_t all = 0, bytes;
    for (uint64_t most = 1600; most >= 8; most /= 2) {
        do {
            CUdeviceptr block;
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            bytes = ((seed >> 33) % most + 2) << 20;
            bytes = cuMemAlloc_v2(&block, bytes) == CUDA_SUCCESS ? bytes : 0;
            all += bytes;
        } while (bytes);
    }
    return all;
}

int main(int count, char **argument)
{
    int devices = count > 1 ? atoi(argument[1]) : 1;
    size_t least = count > 2 ? (size_t)atol(argument[2]) : 0;
    EXPECT(devices <= DEVICES);
    MUST(cuInit(0));
    for (int i = 0; i < devices; i++) {
        CUcontext context;
        MUST(cuDevicePrimaryCtxRetain(&context, i));
        MUST(cuCtxSetCurrent(context));
        size_t all = fill((uint64_t)i + 1) >> 20;
        printf("device %d: %zu MiB\n", i, all);
        EXPECT(all >= least);
    }
    return failures != 0;
}
