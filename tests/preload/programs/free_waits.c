/* Preloaded, on the simulator: what is complete when a cudaFree that waits has returned, which is what it is natively,
   and that the statistics say how long it took. Whose work is waited for: all streams' of the context that the memory
   is of, whichever is current; not another context's, nor another device's. */
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

enum { BYTES = 1 << 20, STREAMS = 6, LONG_US = 40000, TRIES = 40, LEAST_NS = 10000000 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static atomic_bool freeing, let_go;
static atomic_int done;

/* Goes on for a while after the free has begun. */
static void run(void *unused)
{
    (void)unused;
    while (!atomic_load(&freeing))
        usleep(50);
    usleep(LONG_US);
    atomic_fetch_add(&done, 1);
}

static void hold(void *unused)
{
    (void)unused;
    while (!atomic_load(&let_go))
        usleep(50);
    atomic_fetch_add(&done, 1);
}

static void make_streams(CUstream *stream)
{
    stream[0] = NULL;
    stream[1] = CU_STREAM_PER_THREAD;
    for (int i = 2; i < STREAMS; i++)
        MUST(cuStreamCreate(&stream[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
}

/* Frees a block of `own` beside work on one of its streams, or on all; false: the work was over before the wait
   began. */
static bool waits(CUcontext own, int device, CUcontext current, CUstream *stream, int first, int last)
{
    CUdeviceptr block;
    atomic_store(&freeing, false);
    atomic_store(&done, 0);
    MUST(cuCtxSetCurrent(own));
    MUST(cuMemAlloc_v2(&block, BYTES));
    for (int i = first; i <= last; i++)
        MUST(cuLaunchHostFunc(stream[i], run, NULL));
    MUST(cuCtxSetCurrent(current));
    uint64_t frees = statistic(device, "strict_frees"), ns = statistic(device, "strict_wait_ns");
    atomic_store(&freeing, true);
    MUST(cuMemFree_v2(block));
    EXPECT(atomic_load(&done) == last - first + 1);
    EXPECT(statistic(device, "strict_frees") == frees + 1);
    return statistic(device, "strict_wait_ns") - ns >= LEAST_NS;
}

/* On a busy machine a thread may come to its wait late, not always. */
static void check(CUcontext own, int device, CUcontext current, CUstream *stream, int first, int last)
{
    bool counted = false;
    for (int i = 0; i < TRIES && !counted; i++)
        counted = waits(own, device, current, stream, first, last);
    EXPECT(counted);
}

/* Work of `other` is neither waited for nor forgotten, where it may use the block: with `copies` because it has
   done. */
static void check_beside(CUcontext own, CUcontext other, CUstream stream, bool copies, bool may_use)
{
    CUdeviceptr block, copy;
    atomic_store(&let_go, false);
    atomic_store(&done, 0);
    MUST(cuCtxSetCurrent(own));
    MUST(cuMemAlloc_v2(&block, BYTES));
    MUST(cuCtxSetCurrent(other));
    if (copies) {
        MUST(cuMemAlloc_v2(&copy, BYTES));
        MUST(cuMemcpyPeerAsync(copy, other, block, own, BYTES, stream));
        MUST(cuMemFree_v2(copy));
    }
    MUST(cuLaunchHostFunc(stream, hold, NULL));
    MUST(cuCtxSetCurrent(own));
    uint64_t frees = statistic(0, "strict_frees");
    MUST(cuMemFree_v2(block));
    EXPECT(atomic_load(&done) == 0);
    EXPECT(statistic(0, "strict_frees") == frees + 1);
    EXPECT((statistic(0, "pending_bytes") > 0) == may_use);
    atomic_store(&let_go, true);
    MUST(cuCtxSetCurrent(other));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(own));
    for (size_t available, total; statistic(0, "pending_bytes") > 0; usleep(100))
        MUST(cuMemGetInfo_v2(&available, &total)); /* asks how far work has come */
}

int main(void)
{
    CUcontext near, far, made, popped;
    CUstream stream[STREAMS], distant[STREAMS], beside;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&near, 0));
    MUST(cuDevicePrimaryCtxRetain(&far, 1));
    MUST(cuCtxSetCurrent(near));
    make_streams(stream);
    MUST(cuCtxSetCurrent(far));
    make_streams(distant);
    for (int i = 0; i < STREAMS; i++)
        check(near, 0, near, stream, i, i);
    check(near, 0, near, stream, 0, STREAMS - 1);
    check(near, 0, far, stream, 2, STREAMS - 1);
    check(far, 1, near, distant, 2, STREAMS - 1);
    check(far, 1, far, distant, 0, STREAMS - 1);
    check_beside(near, far, distant[3], false, false);
    EXPECT(statistic(0, "pending_bytes") == 0);
    check_beside(near, far, distant[3], true, true);
    MUST(cuCtxCreate_v2(&made, 0, 0));
    MUST(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxPopCurrent_v2(&popped));
    check_beside(near, made, beside, false, true);
    check(near, 0, made, stream, 2, STREAMS - 1);
    check(made, 0, near, &beside, 0, 0);
    MUST(cuCtxDestroy_v2(made));
    MUST(cuCtxSetCurrent(near));
    MUST(cuCtxEnablePeerAccess(far, 0));
    check_beside(near, far, distant[3], false, false); /* this one may reach that one's */
    MUST(cuCtxSetCurrent(far));
    MUST(cuCtxEnablePeerAccess(near, 0));
    check_beside(near, far, distant[3], false, true);
    return failures != 0;
}
