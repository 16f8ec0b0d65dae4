/* Two hundred streams that come and go with work in them, among them each thread's own. */
#include "stranger.h"

#include <pthread.h>

enum { STREAMS = 200, BYTES = 30000, THREADS = 6 };

static void *own_stream(void *number)
{
    unsigned char *block, byte = 0, want = (unsigned char)(intptr_t)number;
    intptr_t wrong = 0;
    MUST(cudaSetDevice(0));
    for (int i = 0; i < 30; i++) {
        MUST(cudaMalloc((void **)&block, BYTES));
        MUST(cudaMemsetAsync(block, want, BYTES, cudaStreamPerThread));
        MUST(cudaMemcpyAsync(&byte, block + i, 1, cudaMemcpyDeviceToHost, cudaStreamPerThread));
        MUST(cudaStreamSynchronize(cudaStreamPerThread));
        wrong += byte != want;
        MUST(cudaFree(block));
    }
    return (void *)wrong;
}

int main(void)
{
    static unsigned char *block[STREAMS], got[STREAMS];
    cudaStream_t stream[STREAMS];
    pthread_t thread[THREADS];
    void *result;
    unsigned wrong = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < STREAMS; i++) {
            MUST(cudaStreamCreateWithFlags(&stream[i], i % 3 ? cudaStreamNonBlocking : cudaStreamDefault));
            MUST(cudaMalloc((void **)&block[i], BYTES));
            MUST(cudaMemsetAsync(block[i], i + round, BYTES, stream[i]));
            MUST(cudaMemcpyAsync(&got[i], block[i] + BYTES - 1, 1, cudaMemcpyDeviceToHost, stream[i]));
            MUST(cudaStreamDestroy(stream[i])); /* its work goes on */
        }
        MUST(cudaDeviceSynchronize());
        for (int i = 0; i < STREAMS; i++) {
            wrong += got[i] != (unsigned char)(i + round);
            MUST(cudaFree(block[i]));
        }
        for (int i = 0; i < THREADS; i++)
            pthread_create(&thread[i], NULL, own_stream, (void *)(intptr_t)(i + 1));
        for (int i = 0; i < THREADS; i++) {
            pthread_join(thread[i], &result);
            wrong += (unsigned)(intptr_t)result;
        }
    }
    printf("%u wrong\n", wrong);
    SHOW(cudaDeviceSynchronize());
    SHOW(cudaGetLastError());
    return 0;
}
