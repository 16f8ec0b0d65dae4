/* Some threads make contexts, work in them and destroy them, or reset the second device, while others allocate and free
   in the first one's primary context: none of them is the others' affair. */
#include "stranger_driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { USERS = 2, MOST = 150, FEW = 6, BYTES = 100000 };

static CUcontext primary;
static atomic_int wrong;

static void *come_and_go(void *unused)
{
    (void)unused;
    for (int i = 0; i < times(MOST, FEW); i++) {
        CUcontext context;
        CUstream stream;
        CUdeviceptr memory, kept;
        unsigned char byte = 0;
#if CUDA_VERSION >= 13000
        NEED(cuCtxCreate(&context, NULL, 0, 0));
#else
        NEED(cuCtxCreate(&context, 0, 0));
#endif
        NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        NEED(cuMemAlloc(&memory, BYTES));
        NEED(cuMemAlloc(&kept, BYTES));
        NEED(cuMemsetD8Async(memory, (unsigned char)i, BYTES, stream));
        NEED(cuMemcpyDtoDAsync(kept, memory, BYTES, stream));
        NEED(cuMemcpyDtoHAsync(&byte, kept + 77, 1, stream));
        if (i % 2)
            NEED(cuMemFree(memory));
        NEED(cuStreamSynchronize(stream));
        wrong += byte != (unsigned char)i;
        NEED(cuMemsetD8Async(kept, 0, BYTES, stream));
        NEED(cuCtxDestroy(context));
    }
    return NULL;
}

static void *reset(void *unused)
{
    int devices = 0;
    (void)unused;
    MUST(cudaGetDeviceCount(&devices));
    for (int i = 0; i < times(MOST, FEW) && devices > 1; i++) {
        unsigned char *block, byte = 0;
        MUST(cudaSetDevice(1));
        MUST(cudaMalloc((void **)&block, BYTES));
        MUST(cudaMemset(block, i, BYTES));
        MUST(cudaMemcpy(&byte, block + 9, 1, cudaMemcpyDeviceToHost));
        wrong += byte != (unsigned char)i;
        MUST(cudaMemset(block, 0, BYTES));
        MUST(cudaDeviceReset());
    }
    return NULL;
}

static void *use(void *number)
{
    CUstream stream;
    NEED(cuCtxSetCurrent(primary));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 4 * times(MOST, FEW); i++) {
        CUdeviceptr a, b;
        unsigned char byte = 0, value = (unsigned char)(i + (int)(intptr_t)number);
        NEED(cuMemAlloc(&a, BYTES));
        NEED(cuMemAlloc(&b, BYTES));
        NEED(cuMemsetD8Async(a, value, BYTES, stream));
        NEED(cuMemcpyDtoDAsync(b, a, BYTES, stream));
        NEED(cuMemFree(a));
        NEED(cuMemcpyDtoHAsync(&byte, b + BYTES - 1, 1, stream));
        NEED(cuStreamSynchronize(stream));
        wrong += byte != value;
        NEED(cuMemFree(b));
    }
    NEED(cuStreamDestroy(stream));
    return NULL;
}

int main(void)
{
    pthread_t thread[USERS + 2];
    size_t before, after, total;
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&primary, 0));
    NEED(cuCtxSetCurrent(primary));
    NEED(cuMemGetInfo(&before, &total));
    pthread_create(&thread[USERS], NULL, come_and_go, NULL);
    pthread_create(&thread[USERS + 1], NULL, reset, NULL);
    for (intptr_t i = 0; i < USERS; i++)
        pthread_create(&thread[i], NULL, use, (void *)i);
    for (int i = 0; i < USERS + 2; i++)
        pthread_join(thread[i], NULL);
    printf("%d wrong\n", wrong);
    NEED(cuCtxSynchronize());
    for (int tries = 0; tries < 5000 && (tries == 0 || after != before); tries++) { /* soon */
        usleep(1000);
        NEED(cuMemGetInfo(&after, &total));
    }
    FACT(within_a_page(before, after));
    return 0;
}
