/* cudaDeviceReset takes everything; afterwards the program starts again. */
#include "stranger.h"

int main(void)
{
    size_t before, after;
    unsigned char *p, *q, byte = 0;
    MUST(cudaMemGetInfo(&before, NULL));
    MUST(cudaMalloc((void **)&p, 30 * MiB));
    MUST(cudaMemset(p, 1, 30 * MiB));
    SHOW(cudaDeviceReset());
    MUST(cudaMemGetInfo(&after, NULL));
    FACT(within_a_page(after, before));
    SHOW(cudaFree(p));
    SHOW(cudaGetLastError());
    MUST(cudaMalloc((void **)&q, 30 * MiB));
    MUST(cudaMemset(q, 9, 30 * MiB));
    MUST(cudaMemcpy(&byte, q + 29 * MiB, 1, cudaMemcpyDeviceToHost));
    FACT(byte == 9);
    SHOW(cudaFree(q));
    SHOW(cudaDeviceReset());
    SHOW(cudaDeviceReset());
    return 0;
}
