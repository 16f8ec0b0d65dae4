/* Plain memory that is freed in the order of a stream while a kernel on another one doesn't end. The memory is free once
   its stream has come there. It serves again on a card that has no room for as much beside it. */
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "stranger.h"

enum { BLOCKS = 20, ROUNDS = 30 };

static atomic_bool ends;

static void CUDART_CB persistent(void *unused)
{
    (void)unused;
    while (!atomic_load(&ends))
        usleep(100);
}

int main(void)
{
    cudaStream_t kernel, stream;
    unsigned char *first, *block[BLOCKS], byte[BLOCKS];
    const size_t bytes = 10 * MiB;
    MUST(cudaStreamCreateWithFlags(&kernel, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&first, MiB));
    MUST(cudaLaunchHostFunc(kernel, persistent, NULL));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cudaMalloc((void **)&block[i], bytes));
        MUST(cudaMemsetAsync(block[i], i, bytes, stream));
    }
    for (int i = 0; i < BLOCKS; i += 2)
        MUST(cudaFreeAsync(block[i], stream));
    MUST(cudaStreamSynchronize(stream));
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char *again;
        MUST(cudaMalloc((void **)&again, bytes));
        MUST(cudaMemsetAsync(again, 100 + i, bytes, stream));
        MUST(cudaMemcpyAsync(&byte[0], again + bytes - 1, 1, cudaMemcpyDeviceToHost, stream));
        MUST(cudaFreeAsync(again, stream));
        MUST(cudaStreamSynchronize(stream));
        FACT(byte[0] == 100 + i);
    }
    for (int i = 1; i < BLOCKS; i += 2) {
        MUST(cudaMemcpyAsync(&byte[i], block[i] + bytes - 1, 1, cudaMemcpyDeviceToHost, stream));
        MUST(cudaFreeAsync(block[i], stream));
    }
    MUST(cudaStreamSynchronize(stream));
    for (int i = 1; i < BLOCKS; i += 2)
        FACT(byte[i] == i);
    SHOW(cudaFreeAsync(block[1], stream));
    atomic_store(&ends, true);
    MUST(cudaStreamSynchronize(kernel));
    SHOW(cudaFree(first));
    return 0;
}
