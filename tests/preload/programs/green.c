/* Preloaded, on the simulator: work of green contexts counts for the memory that it uses, whichever context is current
   at a free, under the policy that the configuration has. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "segalloc/segalloc.h"
#include "served.h"

enum { BYTES = 24 << 20, MOST = 32 }; /* of a card of 64 MiB: two fit, three don't */

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static atomic_bool end, ended;

static void long_work(void *unused)
{
    (void)unused;
    for (int i = 0; i < 10000 && !end; i++)
        usleep(1000);
    ended = true;
}

static void *end_soon(void *unused)
{
    (void)unused;
    usleep(30000);
    end = true;
    return NULL;
}

static bool is_strict(void)
{
    char policy[16] = "";
    segalloc_option("free_sync", policy, sizeof policy);
    return strcmp(policy, "strict") == 0;
}

static CUgreenCtx green_of(void)
{
    CUdevResource all, share;
    CUdevResourceDesc description;
    CUgreenCtx green = NULL;
    unsigned groups = 1;
    MUST(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    MUST(cuDevSmResourceSplitByCount(&share, &groups, &all, NULL, 0, 8));
    MUST(cuDevResourceGenerateDesc(&description, &share, 1));
    MUST(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static int room(void)
{
    CUdeviceptr block[MOST];
    int got = 0;
    while (got < MOST && cuMemAlloc_v2(&block[got], BYTES) == CUDA_SUCCESS)
        got++;
    for (int i = 0; i < got; i++)
        MUST(cuMemFree_v2(block[i]));
    return got;
}

/* A block that `busy` may be at work on is freed with `current` current. */
static void free_beside(CUcontext current, CUstream busy, CUcontext primary)
{
    pthread_t thread;
    CUdeviceptr block;
    end = ended = false;
    MUST(cuCtxSetCurrent(current));
    MUST(cuMemAlloc_v2(&block, BYTES));
    MUST(cuMemsetD8Async(block, 1, BYTES, busy));
    MUST(cuLaunchHostFunc(busy, long_work, NULL));
    EXPECT(pthread_create(&thread, NULL, end_soon, NULL) == 0);
    bool strict = is_strict();
    MUST(cuMemFree_v2(block));
    EXPECT(ended || !strict);
    pthread_join(thread, NULL);
    while (!ended)
        usleep(1000);
    MUST(cuCtxSetCurrent(primary));
    MUST(cuCtxSynchronize());
    EXPECT(room() == 2);
}

/* By the order of the green context's stream: nobody else has the block before its work is complete. */
static void by_stream(CUstream green, CUstream other)
{
    end = ended = false;
    void *kept = segalloc_malloc_on(BYTES, green), *freed = segalloc_malloc_on(BYTES, green);
    EXPECT(kept && freed);
    MUST(cuLaunchHostFunc(green, long_work, NULL));
    MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)freed, 1, BYTES, green));
    MUST((CUresult)segalloc_free(freed));
    if (!is_strict()) {
        EXPECT(segalloc_malloc_on(BYTES, other) == NULL); /* after a bounded wait */
        end = true;
    }
    MUST(cuStreamSynchronize(green));
    void *later = segalloc_malloc_on(BYTES, other);
    EXPECT(later != NULL);
    MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)later, 2, BYTES, other));
    MUST((CUresult)segalloc_free(later));
    MUST((CUresult)segalloc_free(kept));
    MUST(cuCtxSynchronize());
}

int main(void)
{
    CUcontext primary, context;
    CUstream stream, own;
    CUdeviceptr block;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuCtxSetCurrent(primary));
    CUgreenCtx green = green_of();
    MUST(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    if (!is_strict())
        by_stream(stream, own); /* before it is known by any other call that it is a green one's */
    MUST(cuCtxFromGreenCtx(&context, green));
    free_beside(primary, stream, primary);
    free_beside(context, stream, primary);
    free_beside(context, own, primary);
    free_beside(primary, own, primary);

    /* Its blocks are the primary context's, and outlive it. */
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&block, BYTES));
    MUST(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block));
    EXPECT(context == primary);
    MUST(cuCtxSetCurrent(primary));
    MUST(cuStreamDestroy_v2(stream));
    MUST(cuGreenCtxDestroy(green));
    MUST(cuMemsetD8_v2(block, 3, BYTES));
    MUST(cuMemFree_v2(block));
    EXPECT(room() == 2);
    return failures != 0;
}
