/* cudaDeviceReset with work queued, streams, events, pools and graphs alive; then all of it again. */
#include "stranger.h"

static void work(int round)
{
    cudaStream_t stream[3];
    cudaEvent_t event;
    unsigned char *block[24], *pooled, byte = 0;
    for (int i = 0; i < 3; i++)
        MUST(cudaStreamCreateWithFlags(&stream[i], i ? cudaStreamNonBlocking : cudaStreamDefault));
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int i = 0; i < 24; i++) {
        MUST(cudaMalloc((void **)&block[i], (size_t)(i + 1) * 100000));
        MUST(cudaMemsetAsync(block[i], round + i, (size_t)(i + 1) * 100000, stream[i % 3]));
        if (i % 5 == 4)
            MUST(cudaFree(block[i - 2]));
    }
    MUST(cudaEventRecord(event, stream[1]));
    MUST(cudaStreamWaitEvent(stream[2], event, 0));
    MUST(cudaMallocAsync((void **)&pooled, MiB, stream[2]));
    MUST(cudaMemsetAsync(pooled, 1, MiB, stream[2]));
    MUST(cudaFreeAsync(pooled, stream[2]));
    MUST(cudaMemcpyAsync(&byte, block[23] + 2000000, 1, cudaMemcpyDeviceToHost, stream[2]));
    MUST(cudaStreamSynchronize(stream[2]));
    FACT(byte == round + 23);
}

int main(void)
{
    size_t before = 0, after;
    unsigned char *stale, *fresh;
    MUST(cudaMemGetInfo(&before, NULL));
    for (int i = 0; i < 5; i++) {
        work(i);
        MUST(cudaMalloc((void **)&stale, MiB));
        SHOW(cudaDeviceReset());
        SHOW(cudaFree(stale));
        SHOW(cudaGetLastError());
        MUST(cudaMemGetInfo(&after, NULL));
        FACT(within_a_page(after, before));
        MUST(cudaMalloc((void **)&fresh, MiB));
        SHOW(cudaMemset(fresh, i, MiB));
        SHOW(cudaFree(fresh));
    }
    SHOW(cudaDeviceReset());
    return 0;
}
