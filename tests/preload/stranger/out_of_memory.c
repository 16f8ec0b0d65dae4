/* Memory runs out, the program notices, frees some and goes on. */
#include "stranger.h"

int main(void)
{
    enum { PARTS = 8, MOST = 3 * PARTS };
    unsigned char *parts[MOST] = {0}, *p = (unsigned char *)1, byte;
    size_t free_bytes, total, chunk;
    int count = 0;
    MUST(cudaMemGetInfo(&free_bytes, &total));
    chunk = free_bytes / PARTS / (2 * MiB) * (2 * MiB);
    SHOW(cudaMalloc((void **)&p, total + 1));
    FACT(p == (unsigned char *)1);
    SHOW(cudaGetLastError());
    SHOW(cudaGetLastError());

    cudaError_t error = cudaSuccess;
    while (count < MOST) {
        error = cudaMalloc((void **)&parts[count], chunk);
        if (error != cudaSuccess)
            break;
        MUST(cudaMemset(parts[count], count, chunk));
        count++;
    }
    printf("%d parts, then %s\n", count, cudaGetErrorName(error));
    SHOW(cudaGetLastError());
    SHOW(cudaMalloc((void **)&p, chunk));
    SHOW(cudaGetLastError());
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        MUST(cudaMemcpy(&byte, parts[i] + chunk - 1, 1, cudaMemcpyDeviceToHost));
        wrong += byte != i;
    }
    printf("%d wrong\n", wrong);

    /* every second one, then in halves: what was free is free again, in smaller pieces */
    for (int i = 0; i < count; i += 2)
        MUST(cudaFree(parts[i]));
    int halves = 0;
    unsigned char *half[MOST];
    while (halves < MOST && cudaMalloc((void **)&half[halves], chunk / 2 / 512 * 512) == cudaSuccess)
        halves++;
    FACT(halves >= (count + 1) / 2 * 2);
    SHOW(cudaGetLastError());
    for (int i = 0; i < halves; i++)
        MUST(cudaFree(half[i]));
    for (int i = 1; i < count; i += 2) {
        MUST(cudaMemcpy(&byte, parts[i], 1, cudaMemcpyDeviceToHost));
        wrong += byte != i;
        MUST(cudaFree(parts[i]));
    }
    printf("%d wrong\n", wrong);

    /* one block of nearly all of it */
    SHOW(cudaMalloc((void **)&p, chunk * PARTS));
    SHOW(cudaMemset(p, 3, chunk * PARTS));
    SHOW(cudaFree(p));

    /* freed by cudaFree, it is there for the driver's pools too */
    SHOW(cudaMallocAsync((void **)&p, chunk * PARTS, 0));
    SHOW(cudaFreeAsync(p, 0));
    SHOW(cudaStreamSynchronize(0));
    size_t again;
    MUST(cudaMemGetInfo(&again, NULL));
    FACT(within_a_page(again, free_bytes));
    SHOW(cudaGetLastError());
    return 0;
}
