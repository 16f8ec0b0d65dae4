/* More contexts than anybody needs, each with memory, pushed and popped by several threads; frees of one's memory in
   another; contexts that end with work queued. */
#include "stranger_driver.h"

#include <pthread.h>
#include <unistd.h>

enum { MOST = 80, THREADS = 3, BYTES = 300000 };

static CUcontext context[MOST], primary;
static CUdeviceptr memory[MOST];
static CUstream stream[MOST];
static int contexts;

static void make(int i)
{
    CUcontext popped;
#if CUDA_VERSION >= 13000
    NEED(cuCtxCreate(&context[i], NULL, 0, 0));
#else
    NEED(cuCtxCreate(&context[i], 0, 0));
#endif
    NEED(cuMemAlloc(&memory[i], BYTES));
    NEED(cuStreamCreate(&stream[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    NEED(cuMemsetD8Async(memory[i], (unsigned char)i, BYTES, stream[i]));
    NEED(cuCtxPopCurrent(&popped));
}

static void *work(void *number)
{
    CUcontext popped;
    for (int i = (int)(intptr_t)number; i < contexts; i += THREADS) {
        CUdeviceptr own;
        unsigned char byte = 0;
        NEED(cuCtxPushCurrent(primary));
        NEED(cuCtxPushCurrent(context[i]));
        NEED(cuMemAlloc(&own, BYTES));
        NEED(cuMemcpyDtoDAsync(own, memory[i], BYTES, stream[i]));
        NEED(cuMemcpyDtoHAsync(&byte, own + BYTES - 1, 1, stream[i]));
        NEED(cuStreamSynchronize(stream[i]));
        if (byte != (unsigned char)i)
            printf("context %d: 1 wrong\n", i);
        NEED(cuCtxPopCurrent(&popped));
        NEED(cuMemFree(own)); /* with the primary one current */
        NEED(cuCtxPopCurrent(&popped));
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[THREADS];
    CUdeviceptr shared;
    size_t before, after, total;
    unsigned char byte = 0;
    contexts = times(MOST, 4);
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&primary, 0));
    NEED(cuCtxSetCurrent(primary));
    NEED(cuMemGetInfo(&before, &total));
    NEED(cuMemAlloc(&shared, BYTES));
    for (int i = 0; i < contexts; i++)
        make(i);
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    /* the last one works on memory that the first frees */
    NEED(cuCtxPushCurrent(context[contexts - 1]));
    for (int i = 0; i < 50; i++)
        NEED(cuMemsetD8Async(shared, (unsigned char)i, BYTES, stream[contexts - 1]));
    NEED(cuMemcpyDtoHAsync(&byte, shared, 1, stream[contexts - 1]));
    NEED(cuCtxPopCurrent(NULL));
    NEED(cuCtxSetCurrent(primary));
    for (int i = 0; i < contexts; i++) {
        if (i % 3 == 0)
            NEED(cuMemFree(memory[i])); /* another context's */
        if (i == contexts - 1)
            NEED(cuMemFree(shared));
        NEED(cuCtxDestroy(context[i])); /* the rest of its memory goes with it */
    }
    FACT(byte == 49);
    TELL(cuMemFree(memory[1]));
    for (int tries = 0; tries < 5000 && (tries == 0 || after != before); tries++) { /* soon */
        usleep(1000);
        NEED(cuMemGetInfo(&after, &total));
    }
    FACT(within_a_page(before, after));
    TELL(cuDevicePrimaryCtxRelease(0));
    return 0;
}
