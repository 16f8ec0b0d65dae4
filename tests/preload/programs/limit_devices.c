/* Preloaded, under a limit of half of each of three devices: what cudaMemGetInfo says of a device can be had there, at any time
   and in whichever order devices are first used. */
#include "runtime.h"
#include "served.h"

enum { DEVICES = 3, MIB_BYTES = 1 << 20, HALF = 256 /* MiB of a device */ };

static size_t available(int device)
{
    size_t bytes = 0, total = 0;
    EXPECT(cudaSetDevice(device) == cudaSuccess && cudaMemGetInfo(&bytes, &total) == cudaSuccess);
    EXPECT(total == 2 * (size_t)HALF * MIB_BYTES);
    return bytes / MIB_BYTES;
}

int main(void)
{
    void *block[DEVICES] = {NULL}, *all;
    for (int used = 0; used < DEVICES; used++) {
        for (int device = 0; device < DEVICES; device++) {
            size_t said = available(device);
            EXPECT(said <= HALF - (block[device] ? 10 : 0) && said >= HALF - (block[device] ? 20 : 0)); /* in a segment */
        }
        int next = (used + 1) % DEVICES;
        EXPECT(cudaSetDevice(next) == cudaSuccess && cudaMalloc(&block[next], 10 * MIB_BYTES) == cudaSuccess);
        size_t said = available(next);
        EXPECT(cudaMalloc(&all, (said + 2) * MIB_BYTES) == cudaErrorMemoryAllocation && cudaGetLastError() != cudaSuccess);
        EXPECT(cudaMalloc(&all, said * MIB_BYTES) == cudaSuccess && available(next) == 0);
        EXPECT(cudaFree(all) == cudaSuccess);
    }
    return failures != 0;
}
