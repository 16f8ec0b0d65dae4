/* A program of the driver API, linked with libcuda. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "stranger_machine.h"

#define SHOW(call) printf("%s: %d\n", #call, (int)(call))
#define MUST(call) \
    do { \
        CUresult must_ = (call); \
        if (must_ != CUDA_SUCCESS) { \
            printf("%s: %d\n", #call, (int)must_); \
            exit(1); \
        } \
    } while (0)
#define FACT(fact) printf("%s: %s\n", #fact, (fact) ? "yes" : "no")

int main(void)
{
    CUdevice device;
    CUcontext context, primary;
    CUdeviceptr p = 1, q = 1, pitched;
    size_t free_bytes, total, now, pitch, size = 0;
    char text[64];
    SHOW(cuMemAlloc(&p, 100));
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&primary, device));
    SHOW(cuMemAlloc(&p, 100));
    MUST(cuCtxSetCurrent(primary));
    MUST(cuMemGetInfo(&free_bytes, &total));

    SHOW(cuMemAlloc(&p, 0));
    SHOW(cuMemAlloc(NULL, 10));
    SHOW(cuMemAlloc(&p, 5 << 20));
    SHOW(cuMemsetD8(p, 0x61, 5 << 20));
    SHOW(cuMemcpyDtoH(text, p + (4 << 20), sizeof text));
    FACT(text[0] == 'a' && text[63] == 'a');
    SHOW(cuMemAllocPitch(&pitched, &pitch, 1000, 10, 4));
    printf("pitch %zu\n", pitch);
    SHOW(cuMemGetAddressRange(&q, &size, p + 12345));
    FACT(q == p && size == 5 << 20);
    SHOW(cuMemFree(p + 256));
    SHOW(cuMemFree(0));
    SHOW(cuMemFree(pitched));
    SHOW(cuMemFree(p));
    SHOW(cuMemFree(p));
    SHOW(cuMemAlloc(&p, total + 1));
    MUST(cuMemGetInfo(&now, NULL));
    FACT(within_a_page(now, free_bytes));

    /* a context of one's own takes its memory with it */
#if CUDA_VERSION >= 13000
    MUST(cuCtxCreate(&context, NULL, 0, device));
#else
    MUST(cuCtxCreate(&context, 0, device));
#endif
    MUST(cuMemAlloc(&p, 3 << 20));
    MUST(cuMemsetD32(p, 0x01020304, 100));
    SHOW(cuCtxDestroy(context));
    MUST(cuCtxSetCurrent(primary));
    MUST(cuMemGetInfo(&now, NULL));
    FACT(within_a_page(now, free_bytes));
    SHOW(cuMemFree(p));
    SHOW(cuDevicePrimaryCtxRelease(device));
    return 0;
}
