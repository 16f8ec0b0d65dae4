/* What programs have come to rely on: once cudaFree has returned, the work queued before it is over, on whatever stream
   of the device, whichever device is current. */
#include "stranger.h"

enum { STREAMS = 5, BYTES = 2 << 20, ROUNDS = 40 };

static void check(int device, int current, int round)
{
    cudaStream_t stream[STREAMS];
    unsigned char *block, *target, *host;
    int late = 0;
    MUST(cudaSetDevice(device));
    MUST(cudaMalloc((void **)&block, BYTES));
    MUST(cudaMalloc((void **)&target, BYTES));
    MUST(cudaMallocHost((void **)&host, BYTES));
    memset(host, 0, BYTES);
    for (int i = 0; i < STREAMS; i++) {
        if (i == 0)
            stream[i] = cudaStreamPerThread;
        else
            MUST(cudaStreamCreateWithFlags(&stream[i], i % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
        for (int k = 0; k < 10; k++)
            MUST(cudaMemsetAsync(target + i * (BYTES / STREAMS), 1 + i, BYTES / STREAMS, stream[i]));
        MUST(cudaMemcpyAsync(host + i * (BYTES / STREAMS), target + i * (BYTES / STREAMS), BYTES / STREAMS,
            cudaMemcpyDeviceToHost, stream[i]));
    }
    MUST(cudaSetDevice(current));
    MUST(cudaFree(block)); /* which none of them uses */
    for (int i = 0; i < STREAMS; i++)
        late += host[(i + 1) * (BYTES / STREAMS) - 1] != 1 + i;
    MUST(cudaSetDevice(device));
    for (int i = 0; i < STREAMS; i++) {
        late += cudaStreamQuery(stream[i]) != cudaSuccess;
        if (i)
            MUST(cudaStreamDestroy(stream[i]));
    }
    if (late)
        printf("device %d, %d current, round %d: 1 wrong\n", device, current, round);
    MUST(cudaFree(target));
    MUST(cudaFreeHost(host));
}

int main(void)
{
    int devices = 0;
    MUST(cudaGetDeviceCount(&devices));
    for (int round = 0; round < ROUNDS; round++) {
        check(0, 0, round);
        check(0, devices - 1, round);
        check(devices - 1, 0, round);
        check(devices - 1, devices - 1, round);
    }
    SHOW(cudaGetLastError());
    return 0;
}
