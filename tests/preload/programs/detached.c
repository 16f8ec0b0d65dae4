/* Contexts that end as PyCUDA ends them: by cuCtxDetach, at the last of their users. Prints what is used after each, and
   how many blocks fit then. */
#include <stdio.h>

#include "cuda_proto.h"

enum { ROUNDS = 3, BLOCKS = 100, MIB = 1 << 20 };

static size_t used(void)
{
    size_t free_bytes = 0, total = 0;
    (void)cuMemGetInfo_v2(&free_bytes, &total);
    return (total - free_bytes) / MIB / 50 * 50; /* pages are larger than the blocks */
}

int main(void)
{
    static CUdeviceptr block[2000];
    CUcontext context, again;
    int failed = 0, count = 0;
    failed += cuInit(0) != CUDA_SUCCESS;
    for (int round = 0; round < ROUNDS; round++) {
        failed += cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS;
        for (int i = 0; i < BLOCKS; i++)
            failed += cuMemAlloc_v2(&block[i], MIB) != CUDA_SUCCESS;
        for (int i = 0; i < BLOCKS / 2; i++)
            failed += cuMemFree_v2(block[i]) != CUDA_SUCCESS;
        printf("round %d: %zu MiB", round, used());
        if (cuCtxAttach(&again, 0) == CUDA_SUCCESS)
            failed += cuCtxDetach(again) != CUDA_SUCCESS;
        printf(", %zu MiB with one user\n", used());
        failed += cuCtxDetach(context) != CUDA_SUCCESS;
    }
    failed += cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS;
    printf("at the end: %zu MiB\n", used());
    while (count < 2000 && cuMemAlloc_v2(&block[count], 10 * MIB) == CUDA_SUCCESS)
        count++;
    printf("%d blocks, %d failed\n", count, failed);
    for (int i = 0; i < count; i++)
        (void)cuMemFree_v2(block[i]);
    return cuCtxDestroy_v2(context) != CUDA_SUCCESS;
}
