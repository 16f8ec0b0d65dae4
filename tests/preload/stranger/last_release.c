/* Threads that take up a device's primary context, work in it and let it go, each for itself: whoever lets it go last
   ends it, with all its memory, just as another may be taking it up again. */
#include "stranger_driver.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, MOST = 100, FEW = 4, BYTES = 3 << 20, SMALL = 5000 };

static atomic_int wrong;
static int device; /* the last one: of two, none that anything else has a context on */

static void *come_and_go(void *number)
{
    for (int i = 0; i < times(MOST, FEW); i++) {
        CUcontext context;
        CUstream stream;
        CUdeviceptr kept, large, small;
        unsigned char byte[2] = {0}, value = (unsigned char)(i * THREADS + (int)(intptr_t)number);
        NEED(cuDevicePrimaryCtxRetain(&context, device));
        NEED(cuCtxSetCurrent(context));
        NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        NEED(cuMemAlloc(&kept, SMALL));
        NEED(cuMemAlloc(&large, BYTES));
        NEED(cuMemAlloc(&small, SMALL));
        NEED(cuMemsetD8Async(large, value, BYTES, stream));
        NEED(cuMemsetD8Async(small, (unsigned char)~value, SMALL, stream));
        NEED(cuMemcpyDtoHAsync(&byte[0], large + BYTES - 1, 1, stream));
        NEED(cuMemcpyDtoHAsync(&byte[1], small + SMALL - 1, 1, stream));
        NEED(cuStreamSynchronize(stream));
        wrong += byte[0] != value || byte[1] != (unsigned char)~value;
        NEED(cuMemFree(large));
        NEED(cuMemFree(small));
        if (i % 4)
            NEED(cuMemFree(kept)); /* else it goes with the context */
        NEED(cuStreamDestroy(stream));
        NEED(cuCtxSetCurrent(NULL));
        NEED(cuDevicePrimaryCtxRelease(device));
    }
    return NULL;
}

/* What is free for the only context. */
static size_t free_alone(void)
{
    CUcontext context;
    size_t available, total;
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    NEED(cuMemGetInfo(&available, &total));
    NEED(cuCtxSetCurrent(NULL));
    NEED(cuDevicePrimaryCtxRelease(device));
    return available;
}

int main(void)
{
    pthread_t thread[THREADS];
    int active, devices;
    unsigned flags;
    NEED(cuInit(0));
    NEED(cuDeviceGetCount(&devices));
    device = devices - 1;
    size_t before = free_alone();
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, come_and_go, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    printf("%d wrong\n", wrong);
    NEED(cuDevicePrimaryCtxGetState(device, &flags, &active));
    FACT(!active);
    FACT(within_a_page(free_alone(), before));
    return 0;
}
