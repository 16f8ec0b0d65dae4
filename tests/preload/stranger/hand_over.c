/* A producer and a consumer on two streams: what one has written the other reads after an event, and gives it back by
   another one. Every buffer is freed when both are done with it. */
#include "stranger.h"

enum { ROUNDS = 100, BYTES = 300000 };

int main(void)
{
    cudaStream_t producer, consumer;
    cudaEvent_t written, read[4];
    unsigned char *buffer[4] = {0}, *sink, last[ROUNDS];
    unsigned wrong = 0;
    MUST(cudaStreamCreateWithFlags(&producer, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithPriority(&consumer, cudaStreamNonBlocking, -1));
    MUST(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
    for (int i = 0; i < 4; i++)
        MUST(cudaEventCreateWithFlags(&read[i], cudaEventDisableTiming | cudaEventBlockingSync));
    MUST(cudaMalloc((void **)&sink, BYTES));
    for (int i = 0; i < ROUNDS; i++) {
        int slot = i % 4;
        if (buffer[slot]) {
            MUST(cudaEventSynchronize(read[slot]));
            MUST(cudaFree(buffer[slot]));
        }
        MUST(cudaMalloc((void **)&buffer[slot], BYTES));
        MUST(cudaMemsetAsync(buffer[slot], i, BYTES, producer));
        MUST(cudaEventRecord(written, producer)); /* one event for all rounds */
        MUST(cudaStreamWaitEvent(consumer, written, 0));
        MUST(cudaMemcpyAsync(sink, buffer[slot], BYTES, cudaMemcpyDeviceToDevice, consumer));
        MUST(cudaMemcpyAsync(&last[i], sink + BYTES - 1, 1, cudaMemcpyDeviceToHost, consumer));
        MUST(cudaEventRecord(read[slot], consumer));
        MUST(cudaStreamWaitEvent(producer, read[slot], 0));
    }
    MUST(cudaStreamSynchronize(consumer));
    SHOW(cudaEventQuery(written));
    SHOW(cudaStreamQuery(consumer));
    for (int i = 0; i < ROUNDS; i++)
        wrong += last[i] != (unsigned char)i;
    printf("%u wrong\n", wrong);
    for (int i = 0; i < 4; i++) {
        MUST(cudaFree(buffer[i]));
        SHOW(cudaEventDestroy(read[i]));
    }
    MUST(cudaFree(sink));
    SHOW(cudaEventDestroy(written));
    SHOW(cudaStreamDestroy(producer));
    SHOW(cudaStreamDestroy(consumer));
    SHOW(cudaDeviceSynchronize());
    return 0;
}
