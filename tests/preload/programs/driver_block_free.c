/* Preloaded, on the simulator: frees by a caller who names streams, where the memory is not ours to keep: in fixed
   segments, or the driver's own. They wait for the context of the memory, not for another device that is held until
   they are over; where that one was told of, they wait for it too.

     held_free fixed | served */
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

enum { BYTES = 1 << 20, BLOCKS = 4, MOST = 80, A_WHILE_US = 2000 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static atomic_int go_on, done;

static void held(void *unused)
{
    (void)unused;
    while (!atomic_load(&go_on))
        usleep(50);
    usleep(A_WHILE_US);
    atomic_fetch_add(&done, 1);
}

static CUcontext take_up(int device, CUstream *ret)
{
    CUcontext context;
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(ret, CU_STREAM_NON_BLOCKING));
    return context;
}

static void allocate(CUdeviceptr *block, int count, CUstream stream)
{
    for (int i = 0; i < count; i++) {
        block[i] = (CUdeviceptr)(uintptr_t)segalloc_malloc_on(BYTES, stream);
        EXPECT(block[i] != 0);
        MUST(cuMemsetD8Async(block[i], (unsigned char)i, BYTES, stream));
    }
}

static void release(const CUdeviceptr *block, int count)
{
    for (int i = 0; i < count; i++)
        MUST((CUresult)segalloc_free((void *)(uintptr_t)block[i]));
}

/* The program's own pool takes a little: what is left of the card in the end is no page, and one block only the driver
   can serve. */
static void fill(CUstream stream)
{
    CUdeviceptr pooled;
    void *block = NULL;
    MUST(cuMemAllocAsync(&pooled, 1, stream));
    for (int i = 0; i < MOST && statistic(0, "passed_on") == 0; i++)
        EXPECT((block = segalloc_malloc_on(BYTES, stream)) != NULL);
    EXPECT(statistic(0, "passed_on") == 1 && segalloc_free(block) == 0);
}

int main(int count, char **argument)
{
    CUstream own, far;
    CUdeviceptr block[BLOCKS];
    bool served = count > 1 && strcmp(argument[1], "served") == 0;
    int blocks = served ? 1 : BLOCKS;
    MUST(cuInit(0));
    CUcontext other = take_up(1, &far), context = take_up(0, &own);
    if (served)
        fill(own);
    allocate(block, blocks, own);
    MUST(cuLaunchHostFunc(far, held, NULL));
    release(block, blocks);
    EXPECT(atomic_load(&done) == 0);
    allocate(block, blocks, own); /* it is there to be had */
    EXPECT(atomic_load(&done) == 0 && (!served || statistic(0, "passed_on") == 3));
    for (int i = 0; i < blocks; i++)
        MUST((CUresult)segalloc_record_stream((void *)(uintptr_t)block[i], far));
    atomic_store(&go_on, 1);
    release(block, blocks);
    EXPECT(atomic_load(&done) == 1);
    MUST(cuCtxSetCurrent(other));
    MUST(cuStreamDestroy(far));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamDestroy(own));
    return failures != 0;
}
