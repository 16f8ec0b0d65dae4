/* Memory of one device is freed while another, which has used it, is held; then that one is reset, or the process
   ends. */
#include "stranger.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { BYTES = 7 << 20, ROUNDS = 5 };

static atomic_int let_go;

static void CUDART_CB until_let_go(void *round)
{
    while (atomic_load(&let_go) < *(int *)round)
        usleep(100);
}

/* A block of device 0 that device 1 has read is freed with device 1 held. */
static void free_beside(cudaStream_t *ret, int *round)
{
    unsigned char *block, *copy;
    MUST(cudaSetDevice(1));
    MUST(cudaStreamCreateWithFlags(ret, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&copy, BYTES));
    MUST(cudaSetDevice(0));
    MUST(cudaMalloc((void **)&block, BYTES));
    MUST(cudaMemset(block, *round, BYTES));
    MUST(cudaMemcpyPeerAsync(copy, 1, block, 0, BYTES, *ret));
    MUST(cudaStreamSynchronize(*ret));
    MUST(cudaLaunchHostFunc(*ret, until_let_go, round));
    MUST(cudaFree(block));
}

static void *release_later(void *round)
{
    usleep(20000);
    atomic_store(&let_go, *(int *)round);
    return NULL;
}

int main(void)
{
    size_t before, after, total;
    unsigned char *block;
    cudaStream_t stream;
    pthread_t thread;
    int round = 0;
    need_devices(2);
    MUST(cudaSetDevice(0));
    MUST(cudaMemGetInfo(&before, &total));
    while (round < ROUNDS) {
        round++;
        free_beside(&stream, &round);
        pthread_create(&thread, NULL, release_later, &round);
        MUST(cudaSetDevice(1));
        SHOW(cudaDeviceReset()); /* which waits for its work */
        pthread_join(thread, NULL);
        MUST(cudaSetDevice(0));
        MUST(cudaMemGetInfo(&after, &total));
        FACT(within_a_page(before, after));
        MUST(cudaMalloc((void **)&block, after / 2)); /* nothing of it is lost */
        SHOW(cudaMemset(block, 1, after / 2));
        SHOW(cudaFree(block));
    }
    round++;
    free_beside(&stream, &round);
    MUST(cudaSetDevice(0));
    MUST(cudaMalloc((void **)&block, BYTES));
    SHOW(cudaMemset(block, 2, BYTES));
    SHOW(cudaGetLastError());
    fflush(stdout);
    _exit(0); /* with work held, and memory not free yet */
}
