/* What cuMemGetInfo says is free can be had, also by a program that never waits for queued work (wait_limit:0). The driver waits
   for a context before it frees, which a helper thread does where an allocation may not; what needs no wait comes before. */
#include "cuda_proto.h"
#include "served.h"

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

int main(void)
{
    enum { ROUNDS = 40 };
    CUcontext context;
    CUstream stream;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr block, all;
        size_t available, total, bytes = (size_t)(3 + i) << 20;
        MUST(cuMemAlloc_v2(&block, bytes));
        MUST(cuMemsetD8Async(block, 1, bytes, stream));
        MUST(cuMemFree_v2(block));
        MUST(cuMemGetInfo_v2(&available, &total));
        MUST(cuMemAlloc_v2(&all, available));
        MUST(cuMemFree_v2(all));
    }
    return 0;
}
