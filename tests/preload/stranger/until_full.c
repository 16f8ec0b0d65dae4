/* Allocates until there is nothing left, frees, and does it again: in pieces of several sizes, and as one. */
#include "stranger.h"

enum { MOST = 20000 };

static unsigned char *block[MOST];

static int take_all(size_t bytes)
{
    int count = 0;
    while (count < MOST && cudaMalloc((void **)&block[count], bytes) == cudaSuccess) {
        MUST(cudaMemset(block[count], count, bytes < 64 ? bytes : 64));
        count++;
    }
    FACT(cudaGetLastError() == cudaErrorMemoryAllocation);
    return count;
}

static void give_back(int count, int step)
{
    unsigned wrong = 0;
    for (int first = 0; first < step; first++) {
        for (int i = first; i < count; i += step) {
            unsigned char byte = 0;
            if (i % 16 == 0) {
                MUST(cudaMemcpy(&byte, block[i], 1, cudaMemcpyDeviceToHost));
                wrong += byte != (unsigned char)i;
            }
            MUST(cudaFree(block[i]));
        }
    }
    printf("%u wrong\n", wrong);
}

/* What a driver may take for a piece: pages of 2 MiB, which small ones share. */
static size_t in_pages(size_t bytes)
{
    return bytes < 2 * MiB ? bytes : (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
}

int main(void)
{
    static const size_t sizes[] = {17 * MiB, 3 * MiB, 2 * MiB, 5 * MiB + 12345, MiB};
    size_t free_bytes, total, all = 0;
    MUST(cudaMemGetInfo(&all, &total));
    for (int i = 0; i < 5; i++) {
        int count = take_all(sizes[i]);
        FACT((size_t)count * in_pages(sizes[i]) + 17 * MiB + sizes[i] > all);
        FACT((size_t)count * sizes[i] < all + 2 * MiB); /* free memory may be told in whole pages only */
        MUST(cudaMemGetInfo(&free_bytes, &total));
        FACT(free_bytes < sizes[i] + 17 * MiB);
        give_back(count, 1 + i);
        MUST(cudaMemGetInfo(&free_bytes, &total));
        FACT(all - free_bytes <= (size_t)times(0, 64) * MiB); /* a real driver keeps page tables */
        size_t pitch = 0; /* the first time nobody knows yet how rows are aligned */
        SHOW(cudaMallocPitch((void **)&block[0], &pitch, 1000, 1000));
        FACT(pitch >= 1000);
        SHOW(cudaFree(block[0]));
        SHOW(cudaMalloc((void **)&block[0], all / (2 * MiB) * (2 * MiB)));
        SHOW(cudaMalloc((void **)&block[1], 8 * MiB));
        SHOW(cudaMemset(block[0] + all / 2, 1, MiB));
        SHOW(cudaFree(block[0]));
    }
    SHOW(cudaMalloc((void **)&block[0], all + 4 * MiB));
    SHOW(cudaMalloc((void **)&block[0], SIZE_MAX));
    SHOW(cudaMalloc((void **)&block[0], SIZE_MAX / 2));
    SHOW(cudaPeekAtLastError());
    SHOW(cudaGetLastError());
    SHOW(cudaGetLastError());
    return 0;
}
