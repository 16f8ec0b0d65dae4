/* Preloaded, on the simulator: a kernel that ends only when the program says so keeps memory from being free for
   others. Allocations go on all the same: memory grows, then there is a wait, but a bounded one, then the driver's
   answer. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "segalloc/segalloc.h"
#include "served.h"

enum { BYTES = 32 << 20, MOST = 64 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static atomic_bool end;

static void persistent(void *unused)
{
    (void)unused;
    while (!end)
        usleep(1000);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(void)
{
    CUcontext context;
    CUstream held, other;
    void *block[MOST];
    int got = 0, again = 0;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    void *first = segalloc_malloc_on(4096, held);
    MUST(cuLaunchHostFunc(held, persistent, NULL));
    /* half of the card is the held stream's, freed behind the kernel */
    for (int i = 0; i < 4; i++) {
        void *behind = segalloc_malloc_on(BYTES, held);
        EXPECT(behind != NULL);
        MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)behind, 1, BYTES, held));
        block[i] = behind;
    }
    for (int i = 0; i < 4; i++)
        MUST((CUresult)segalloc_free(block[i]));
    double began = seconds();
    while (got < MOST && (block[got] = segalloc_malloc_on(BYTES, other)) != NULL)
        got++;
    double took = seconds() - began;
    EXPECT(got == 3); /* of 256 MiB, less what is held and a page of each kind */
    EXPECT(took < 8);
    EXPECT(statistic(0, "host_waits") > 0 && statistic(0, "waits_given_up") > 0);
    /* what is its own the held stream gets without a wait */
    uint64_t waits = statistic(0, "host_waits");
    void *own = segalloc_malloc_on(BYTES, held);
    EXPECT(own != NULL && statistic(0, "host_waits") == waits);
    MUST((CUresult)segalloc_free(own));
    end = true;
    MUST(cuStreamSynchronize(held));
    for (int i = 0; i < 100 && again < 4; i++) { /* on a busy machine it takes longer than wait_limit to be known */
        usleep(10000);
        while (again < MOST && (block[got] = segalloc_malloc_on(BYTES, other)) != NULL)
            got++, again++;
    }
    EXPECT(again == 4);
    while (got-- > 0)
        MUST((CUresult)segalloc_free(block[got]));
    MUST((CUresult)segalloc_free(first));
    return failures != 0;
}
