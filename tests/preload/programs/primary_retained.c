/* Preloaded: a primary context is taken up again while another thread lets it go, which waits for work that ends only
   after that. Neither keeps the other waiting for good. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static atomic_bool end;

static void long_work(void *unused)
{
    (void)unused;
    while (!end)
        usleep(100);
}

static void *let_go(void *unused)
{
    (void)unused;
    MUST(cuDevicePrimaryCtxRelease_v2(1));
    return NULL;
}

int main(void)
{
    enum { UNDER_WAY_US = 20000 };
    CUcontext first = NULL, second = NULL, again = NULL;
    CUdeviceptr block;
    CUstream stream;
    pthread_t thread;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&first, 0));
    MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemAlloc_v2(&block, 1000));
    MUST(cuCtxSetCurrent(second));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuLaunchHostFunc(stream, long_work, NULL));
    MUST(cuCtxSetCurrent(first));
    EXPECT(pthread_create(&thread, NULL, let_go, NULL) == 0);
    usleep(UNDER_WAY_US);
    MUST(cuDevicePrimaryCtxRetain(&again, 1));
    end = true;
    pthread_join(thread, NULL);
    MUST(cuDevicePrimaryCtxRelease_v2(1));
    MUST(cuMemFree_v2(block));
    return failures != 0;
}
