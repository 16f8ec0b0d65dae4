/* Threads that share a device, each with memory of its own and of the others. */
#include "stranger.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 300, BYTES = 70000 };

static unsigned char *handed[THREADS];
static pthread_barrier_t barrier;

static void *work(void *argument)
{
    unsigned self = (unsigned)(uintptr_t)argument;
    unsigned char *host = malloc(BYTES), *back = malloc(BYTES);
    uintptr_t wrong = 0;
    cudaStream_t stream;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned char *p;
        size_t bytes = 1 + mix(self * 1000 + round) % BYTES;
        fill(host, bytes, self * ROUNDS + round);
        MUST(cudaMalloc((void **)&p, bytes));
        MUST(cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, stream));
        MUST(cudaMemcpyAsync(back, p, bytes, cudaMemcpyDeviceToHost, stream));
        MUST(cudaStreamSynchronize(stream));
        wrong += memcmp(host, back, bytes) != 0;
        if (round % 50) {
            MUST(cudaFree(p));
            continue;
        }
        handed[self] = p;
        pthread_barrier_wait(&barrier);
        MUST(cudaFree(handed[(self + 1) % THREADS]));
        pthread_barrier_wait(&barrier);
    }
    MUST(cudaStreamDestroy(stream));
    free(host);
    free(back);
    return (void *)wrong;
}

int main(void)
{
    pthread_t threads[THREADS];
    size_t before, after;
    uintptr_t wrong = 0;
    MUST(cudaMemGetInfo(&before, NULL));
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (uintptr_t)result;
    }
    MUST(cudaMemGetInfo(&after, NULL));
    printf("%zu wrong\n", (size_t)wrong);
    FACT(within_a_page(before, after));
    SHOW(cudaGetLastError());
    return 0;
}
