/* Work in one context that goes on only after memory of another has been freed, by the driver's calls. There are two
   contexts of one device, and two of two devices where there are so many. A function of the host holds the work, or a value in memory that is
   written later. */
#include "stranger_driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

enum { BYTES = 5 << 20, BLOCKS = 5 };

static atomic_int freed;

static void CUDA_CB until_freed(void *round)
{
    while (atomic_load(&freed) < *(int *)round)
        usleep(100);
}

static CUcontext make(int device)
{
    CUcontext context;
#if CUDA_VERSION >= 13000
    NEED(cuCtxCreate(&context, NULL, 0, device));
#else
    NEED(cuCtxCreate(&context, 0, device));
#endif
    return context;
}

/* Memory of `own` is freed with `current` being so, while `held` is. */
static void check(const char *how, CUcontext own, CUcontext held, CUcontext current, bool by_value)
{
    static int round;
    CUdeviceptr block[BLOCKS], kept, flag;
    CUstream stream, waits, writes;
    int wrong = 0;
    round++;
    NEED(cuCtxSetCurrent(held));
    NEED(cuMemAlloc(&kept, BYTES));
    NEED(cuMemAlloc(&flag, 4));
    NEED(cuMemsetD32(flag, 0, 1));
    NEED(cuCtxSynchronize()); /* the stream that reads it does not wait for that */
    NEED(cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&writes, CU_STREAM_NON_BLOCKING));
    if (by_value)
        NEED(cuStreamWaitValue32(waits, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    else
        NEED(cuLaunchHostFunc(waits, until_freed, &round));
    NEED(cuMemsetD8Async(kept, (unsigned char)round, BYTES, waits));
    NEED(cuCtxSetCurrent(own));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++) {
        NEED(cuMemAlloc(&block[i], BYTES));
        NEED(cuMemsetD8Async(block[i], 1, BYTES, stream));
    }
    NEED(cuCtxSetCurrent(current));
    for (int i = 0; i < BLOCKS; i++)
        NEED(cuMemFree(block[i]));
    NEED(cuCtxSetCurrent(own));
    wrong += cuStreamQuery(stream) != CUDA_SUCCESS;
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char byte = 0;
        NEED(cuMemAlloc(&block[i], BYTES));
        NEED(cuMemsetD8Async(block[i], (unsigned char)(30 + i), BYTES, stream));
        NEED(cuMemcpyDtoHAsync(&byte, block[i] + BYTES - 1, 1, stream));
        NEED(cuStreamSynchronize(stream));
        wrong += byte != 30 + i;
    }
    for (int i = 0; i < BLOCKS; i++)
        NEED(cuMemFree(block[i]));
    NEED(cuStreamDestroy(stream));
    NEED(cuCtxSetCurrent(held));
    wrong += cuStreamQuery(waits) != CUDA_ERROR_NOT_READY;
    if (by_value)
        NEED(cuStreamWriteValue32(writes, flag, 1, 0));
    atomic_store(&freed, round);
    NEED(cuStreamSynchronize(waits));
    unsigned char byte = 0;
    NEED(cuMemcpyDtoH(&byte, kept + BYTES - 1, 1));
    wrong += byte != round;
    NEED(cuMemFree(kept));
    NEED(cuMemFree(flag));
    NEED(cuStreamDestroy(waits));
    NEED(cuStreamDestroy(writes));
    printf("%s: %d wrong\n", how, wrong);
}

int main(void)
{
    CUcontext primary, far = NULL;
    size_t before, after, total;
    int devices = 0;
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&primary, 0));
    NEED(cuCtxSetCurrent(primary));
    NEED(cuMemGetInfo(&before, &total));
    CUcontext made = make(0);
    NEED(cuDeviceGetCount(&devices));
    if (devices > 1)
        NEED(cuDevicePrimaryCtxRetain(&far, 1));
    for (int by_value = 0; by_value < 2; by_value++) {
        check("of the primary context, one made beside it", primary, made, primary, by_value);
        check("of the primary context, the other one current", primary, made, made, by_value);
        check("of one that was made", made, primary, made, by_value);
        check("of one that was made, the primary one current", made, primary, primary, by_value);
        if (devices < 2)
            continue;
        check("of another device", primary, far, primary, by_value);
        check("of another device, that one current", primary, far, far, by_value);
        check("of one that was made on another device", made, far, far, by_value);
        check("of the second device", far, primary, made, by_value);
    }
    NEED(cuCtxDestroy(made));
    if (devices > 1)
        NEED(cuDevicePrimaryCtxRelease(1));
    NEED(cuCtxSetCurrent(primary));
    NEED(cuMemGetInfo(&after, &total));
    FACT(within_a_page(before, after));
    NEED(cuDevicePrimaryCtxRelease(0));
    return 0;
}
