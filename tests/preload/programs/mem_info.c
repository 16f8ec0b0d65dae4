/* Preloaded, on the simulator: what cuMemGetInfo says of memory that was freed in an order, and not after a wait. What
   the device is about to have done counts as free by the time that it answers; what the program has queued it does not
   wait for.

     mem_info cudaFree | stream     how blocks are freed */
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

enum { BYTES = 16 << 20, BLOCKS = 10, ROUNDS = 200, SHORT_US = 2000 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static bool by_stream;
static CUstream stream;
static atomic_bool asking, let_go;

static void end_soon(void *unused)
{
    (void)unused;
    while (!atomic_load(&asking))
        usleep(50);
    usleep(SHORT_US);
}

static void hold(void *unused)
{
    (void)unused;
    while (!atomic_load(&let_go))
        usleep(50);
}

static size_t available(void)
{
    size_t bytes = 0;
    atomic_store(&asking, true);
    MUST(cuMemGetInfo_v2(&bytes, NULL));
    return bytes;
}

static void allocate(CUdeviceptr block[BLOCKS])
{
    atomic_store(&asking, false);
    for (int i = 0; i < BLOCKS; i++) {
        if (by_stream)
            block[i] = (CUdeviceptr)(uintptr_t)segalloc_malloc_on(BYTES, stream);
        else
            MUST(cuMemAlloc_v2(&block[i], BYTES));
        MUST(cuMemsetD8Async(block[i], 1, BYTES, stream));
    }
}

static void give_back(const CUdeviceptr block[BLOCKS])
{
    for (int i = 0; i < BLOCKS; i++)
        MUST(by_stream ? (CUresult)segalloc_free((void *)(uintptr_t)block[i]) : cuMemFree_v2(block[i]));
}

/* On a busy machine the device's thread may come to it late, not always. */
static bool is_seen(size_t all, bool waited)
{
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr block[BLOCKS];
        allocate(block);
        if (waited)
            MUST(cuCtxSynchronize());
        else
            MUST(cuLaunchHostFunc(stream, end_soon, NULL));
        give_back(block);
        bool seen = available() == all;
        MUST(cuCtxSynchronize());
        if (seen)
            return true;
    }
    return false;
}

int main(int count, char **argument)
{
    CUcontext context;
    CUdeviceptr block[BLOCKS];
    by_stream = count > 1 && strcmp(argument[1], "stream") == 0;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    size_t all = available();
    EXPECT(is_seen(all, true));
    EXPECT(is_seen(all, false));
    allocate(block);
    MUST(cuLaunchHostFunc(stream, hold, NULL));
    give_back(block);
    EXPECT(available() <= all - BLOCKS * (size_t)BYTES); /* and it has answered */
    atomic_store(&let_go, true);
    MUST(cuCtxSynchronize());
    EXPECT(available() == all);
    return failures != 0;
}
