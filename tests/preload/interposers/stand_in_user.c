/* Pairs through a library that has the runtime's functions. What is known to be a runtime is not called for each: the fast
   path answers. A library that is none must get every call.

     stand_in_user few | all */
#include <stdio.h>
#include <string.h>

#include "cuda_proto.h"

int cudaMalloc(void **ret, size_t bytes);
int cudaFree(void *address);
int cudaRuntimeGetVersion(int *ret);
int stand_in_calls(void);

enum { PAIRS = 100, FEW = 10 };

int main(int argc, char **argv)
{
    CUcontext context;
    CUdevice device;
    int version, good = 0;
    if (argc != 2 || cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cudaRuntimeGetVersion(&version) != 0)
        return 2;
    for (int i = 0; i < PAIRS; i++) {
        void *address;
        good += cudaMalloc(&address, 4096) == 0 && cudaFree(address) == 0;
    }
    int calls = stand_in_calls();
    printf("%d pairs, %d calls\n", good, calls);
    return good != PAIRS || !(strcmp(argv[1], "all") == 0 ? calls == 2 * PAIRS : calls <= FEW);
}
