/* On the simulator: many threads allocate for the first time at once. Everything is answered, and what was served or
   handed on adds up. Preloaded, the argument is "served", "passed" (nothing is ours) or "any". */
#include <pthread.h>
#include <stdlib.h>

#include "runtime.h"
#include "served.h"

enum { THREADS = 16, PAIRS = 500 };

static pthread_barrier_t barrier;

static void *work(void *user)
{
    void *blocks[8] = {0};
    unsigned seed = (unsigned)(uintptr_t)user;
    long wrong = 0;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < PAIRS; i++) {
        int slot = i % 8;
        seed = seed * 1103515245 + 12345;
        if (blocks[slot])
            wrong += cudaFree(blocks[slot]) != cudaSuccess;
        wrong += cudaMalloc(&blocks[slot], 1 + seed % 300000) != cudaSuccess;
    }
    for (int i = 0; i < 8; i++)
        wrong += cudaFree(blocks[i]) != cudaSuccess;
    return (void *)wrong;
}

int main(int argc, char **argv)
{
    const char *expected = argc > 1 ? argv[1] : "any";
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        EXPECT(!wrong);
    }
    uint64_t allocs = statistic(0, "allocs"), frees = statistic(0, "frees");
    EXPECT(allocs == frees);
    if (strcmp(expected, "served") == 0)
        EXPECT(allocs == THREADS * PAIRS);
    if (strcmp(expected, "passed") == 0)
        EXPECT(allocs == 0);
    return failures != 0;
}
