/* Preloaded, on the simulator, free_sync:event: frees that wait for nothing and take effect once all work is complete
   that there was, whichever stream and context it is in. By stream order too, where the caller names no stream.

     epochs contexts    two contexts, and events over each
     epochs streams     a driver without such events: a thread of ours waits
     epochs per_thread  the same, and work in a thread's own stream
     epochs many        more epochs than may be out, and then nothing more is freed
     epochs bounded     the same by stream order: what nobody can ask about is waited for, but not for ever */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "segalloc/segalloc.h"
#include "served.h"

enum { MIB = 1 << 20, BYTES = 32 * MIB, MOST = 64, LONG_S = 30 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static atomic_bool end, ended;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Work that goes on until the program says that it may end. */
static void long_work(void *unused)
{
    double began = seconds();
    (void)unused;
    while (!end && seconds() - began < LONG_S)
        usleep(1000);
    ended = true;
}

static CUstream stream_of(void)
{
    CUstream stream = NULL;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* How many blocks of BYTES the card still has. */
static int count_room(void)
{
    CUdeviceptr block[MOST];
    int got = 0;
    while (got < MOST && cuMemAlloc_v2(&block[got], BYTES) == CUDA_SUCCESS)
        got++;
    for (int i = 0; i < got; i++)
        MUST(cuMemFree_v2(block[i]));
    return got;
}

/* On a busy machine the simulated device's own threads take longer than wait_limit: what comes back is asked for
   again. */
enum { TRIES = 100, STEP_US = 50000 };

/* Whether `room` blocks, or more, can be had again. */
static bool comes_back(int room)
{
    for (int i = 0; i < TRIES; i++) {
        if (count_room() >= room)
            return true;
        usleep(STEP_US);
    }
    return false;
}

/* How many blocks there are room for while no work goes on. All that was freed is there again by then, and afterwards. */
static int settled_room(void)
{
    CUdeviceptr small;
    int room = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < TRIES && statistic(0, "pending_bytes") >= BYTES; i++) {
            usleep(STEP_US);
            MUST(cuMemAlloc_v2(&small, 4096)); /* which asks what is complete */
            MUST(cuMemFree_v2(small));
        }
        room = pass == 0 ? count_room() : room;
    }
    return room;
}

/* A block is freed while work of `busy` goes on that may use it; `quiet` has none. */
static void free_beside(CUcontext current, CUstream busy, CUstream quiet)
{
    CUdeviceptr block, small;
    end = ended = false;
    MUST(cuCtxSetCurrent(current));
    int room = settled_room();
    MUST(cuMemAlloc_v2(&block, BYTES));
    MUST(cuMemsetD8Async(block, 1, BYTES, quiet));
    MUST(cuLaunchHostFunc(busy, long_work, NULL));
    uint64_t strict = statistic(0, "strict_frees");
    MUST(cuMemFree_v2(block));
    EXPECT(!ended && statistic(0, "strict_frees") == strict);
    for (int i = 0; i < 64; i++) { /* and more epochs than one */
        MUST(cuMemAlloc_v2(&small, 4096));
        MUST(cuMemFree_v2(small));
    }
    EXPECT(!ended && statistic(0, "strict_frees") == strict && statistic(0, "pending_bytes") >= BYTES);
    EXPECT(count_room() < room);
    end = true;
    MUST(cuStreamSynchronize(busy));
    EXPECT(comes_back(room));
}

static void over_contexts(CUcontext first)
{
    CUcontext second;
    CUstream own = stream_of();
    CUdeviceptr block, before;
    MUST(cuCtxCreate_v2(&second, 0, 0));
    CUstream other = stream_of();
    free_beside(first, other, own);
    free_beside(second, other, own);
    free_beside(first, own, other);
    free_beside(second, own, other);

    /* What was freed is not anybody's because a context has gone: another one's work may be on it. */
    MUST(cuCtxSetCurrent(second));
    end = ended = false;
    MUST(cuMemAlloc_v2(&block, BYTES));
    MUST(cuLaunchHostFunc(own, long_work, NULL));
    before = block;
    MUST(cuMemFree_v2(block));
    MUST(cuCtxSynchronize()); /* which waits for the second context's work alone, as its end does */
    EXPECT(!ended && statistic(0, "pending_bytes") >= BYTES);
    MUST(cuCtxDestroy_v2(second));
    MUST(cuCtxSetCurrent(first));
    EXPECT(!ended && statistic(0, "pending_bytes") >= BYTES);
    MUST(cuMemAlloc_v2(&block, BYTES));
    EXPECT(block != before);
    end = true;
    MUST(cuCtxSynchronize());
    MUST(cuMemFree_v2(block));
}

static void over_streams(CUcontext context)
{
    CUstream one = stream_of(), two = stream_of(), three = stream_of();
    CUdeviceptr block;
    free_beside(context, one, two);
    free_beside(context, two, one);
    free_beside(context, CU_STREAM_LEGACY, one);
    /* A stream that is gone, but not its work. */
    end = ended = false;
    int room = settled_room();
    MUST(cuMemAlloc_v2(&block, BYTES));
    MUST(cuLaunchHostFunc(three, long_work, NULL));
    MUST(cuStreamDestroy_v2(three));
    MUST(cuMemFree_v2(block));
    EXPECT(!ended && count_room() < room);
    end = true;
    MUST(cuCtxSynchronize());
    EXPECT(comes_back(room));
}

/* No epoch is forgotten for another that has nothing to tell. */
static void more_than_may_be_out(void)
{
    enum { BLOCKS = 3000, EACH = 60000 };
    static CUdeviceptr block[BLOCKS];
    CUdeviceptr all = 0, beside[8];
    CUstream stream = stream_of();
    end = ended = false;
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemAlloc_v2(&block[i], EACH));
    MUST(cuLaunchHostFunc(stream, long_work, NULL));
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemFree_v2(block[i]));
    for (int i = 0; i < 8; i++) /* each asks what is complete */
        MUST(cuMemAlloc_v2(&beside[i], 2 * MIB));
    EXPECT(!ended && statistic(0, "pending_bytes") >= (uint64_t)BLOCKS * EACH);
    end = true;
    MUST(cuStreamSynchronize(stream));
    for (int i = 0; i < TRIES && !all; i++) {
        if (cuMemAlloc_v2(&all, 200 * MIB) != CUDA_SUCCESS)
            usleep(STEP_US);
    }
    EXPECT(all != 0);
    for (int i = 0; i < 8; i++)
        MUST(cuMemFree_v2(beside[i]));
    MUST(cuMemFree_v2(all));
}

static void over_a_threads_own_stream(CUcontext context)
{
    free_beside(context, CU_STREAM_PER_THREAD, stream_of());
}

static void *keep_most_of_the_card(void *context)
{
    void *block[3];
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < 3; i++)
        EXPECT((block[i] = segalloc_malloc_on(2 * BYTES, CU_STREAM_PER_THREAD)) != NULL);
    MUST(cuLaunchHostFunc(CU_STREAM_PER_THREAD, long_work, NULL));
    for (int i = 0; i < 3; i++)
        MUST((CUresult)segalloc_free(block[i]));
    return NULL;
}

static void with_a_bound(CUcontext context)
{
    pthread_t thread;
    void *block[MOST];
    int got = 0, again = 0;
    CUstream stream = stream_of();
    void *first = segalloc_malloc_on(4096, stream);
    EXPECT(pthread_create(&thread, NULL, keep_most_of_the_card, context) == 0);
    pthread_join(thread, NULL);
    double began = seconds();
    while (got < MOST && (block[got] = segalloc_malloc_on(BYTES, stream)) != NULL)
        got++;
    EXPECT(!ended && seconds() - began < LONG_S / 2 && got < 3 && statistic(0, "waits_given_up") > 0);
    end = true;
    while (!ended)
        usleep(1000);
    for (int i = 0; i < TRIES && again < 5; i++) { /* the wait that was given up ends too */
        usleep(STEP_US);
        while (got + again < MOST && (block[got + again] = segalloc_malloc_on(BYTES, stream)) != NULL)
            again++;
    }
    EXPECT(again >= 5);
    for (int i = 0; i < got + again; i++)
        MUST((CUresult)segalloc_free(block[i]));
    MUST((CUresult)segalloc_free(first));
}

int main(int count, char **argument)
{
    CUcontext context;
    CUdeviceptr first;
    const char *which = count == 2 ? argument[1] : "";
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&first, 4096));
    if (strcmp(which, "contexts") == 0)
        over_contexts(context);
    else if (strcmp(which, "streams") == 0)
        over_streams(context);
    else if (strcmp(which, "per_thread") == 0)
        over_a_threads_own_stream(context);
    else if (strcmp(which, "many") == 0)
        more_than_may_be_out();
    else if (strcmp(which, "bounded") == 0)
        with_a_bound(context);
    else
        return 2;
    MUST(cuMemFree_v2(first));
    return failures != 0;
}
