/* Eight streams in turn: bytes go up, are changed, come down; buffers are allocated and freed as they are needed. */
#include "stranger.h"

enum { STREAMS = 8, ROUNDS = 200, MOST = 256 << 10 };

int main(void)
{
    cudaStream_t stream[STREAMS];
    unsigned char *up[STREAMS], *down[STREAMS], *work[STREAMS] = {0};
    size_t bytes[STREAMS] = {0};
    unsigned wrong = 0, seed = 7;
    for (int i = 0; i < STREAMS; i++) {
        MUST(cudaStreamCreateWithFlags(&stream[i], i % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
        MUST(cudaMallocHost((void **)&up[i], MOST));
        MUST(cudaMallocHost((void **)&down[i], MOST));
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        int i = (int)(round % STREAMS);
        MUST(cudaStreamSynchronize(stream[i]));
        for (size_t k = 0; k < bytes[i]; k++)
            wrong += down[i][k] != (k < bytes[i] / 2 ? (unsigned char)(round - STREAMS) : up[i][k]);
        MUST(cudaFree(work[i]));
        seed = mix(seed);
        bytes[i] = 1 + seed % MOST;
        fill(up[i], bytes[i], round);
        MUST(cudaMalloc((void **)&work[i], bytes[i]));
        MUST(cudaMemcpyAsync(work[i], up[i], bytes[i], cudaMemcpyHostToDevice, stream[i]));
        MUST(cudaMemsetAsync(work[i], (int)round & 255, bytes[i] / 2, stream[i]));
        MUST(cudaMemcpyAsync(down[i], work[i], bytes[i], cudaMemcpyDeviceToHost, stream[i]));
    }
    MUST(cudaDeviceSynchronize());
    printf("%u wrong\n", wrong);
    for (int i = 0; i < STREAMS; i++) {
        MUST(cudaFree(work[i]));
        MUST(cudaStreamDestroy(stream[i]));
        MUST(cudaFreeHost(up[i]));
        MUST(cudaFreeHost(down[i]));
    }
    SHOW(cudaGetLastError());
    return 0;
}
