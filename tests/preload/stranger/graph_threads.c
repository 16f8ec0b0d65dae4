/* Threads that capture, each for itself, while others allocate, copy and free. */
#include "stranger.h"

#include <pthread.h>

enum { CAPTURERS = 3, OTHERS = 2, ROUNDS = 25, BYTES = 200000 };

static unsigned wrong[CAPTURERS + OTHERS];

static void *capture(void *number)
{
    int me = (int)(intptr_t)number;
    cudaStream_t stream;
    unsigned char *a, *b, byte = 0;
    MUST(cudaSetDevice(0));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&a, BYTES));
    MUST(cudaMalloc((void **)&b, BYTES));
    for (int i = 0; i < ROUNDS; i++) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        enum cudaStreamCaptureMode mode = i % 2 ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeRelaxed;
        MUST(cudaStreamBeginCapture(stream, mode));
        MUST(cudaMemsetAsync(a, 10 * me + i, BYTES, stream));
        MUST(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, stream));
        MUST(cudaStreamEndCapture(stream, &graph));
        MUST(cudaGraphInstantiate(&exec, graph, 0));
        MUST(cudaGraphLaunch(exec, stream));
        MUST(cudaMemcpyAsync(&byte, b + BYTES / 2, 1, cudaMemcpyDeviceToHost, stream));
        MUST(cudaStreamSynchronize(stream));
        wrong[me] += byte != 10 * me + i;
        MUST(cudaGraphExecDestroy(exec));
        MUST(cudaGraphDestroy(graph));
    }
    MUST(cudaStreamDestroy(stream));
    return NULL;
}

static void *allocate(void *number)
{
    int me = (int)(intptr_t)number;
    cudaStream_t stream;
    unsigned char *block, byte = 0;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    MUST(cudaSetDevice(0));
    MUST(cudaThreadExchangeStreamCaptureMode(&mode));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 10 * ROUNDS; i++) {
        MUST(cudaMallocAsync((void **)&block, BYTES, stream));
        MUST(cudaMemsetAsync(block, i, BYTES, stream));
        MUST(cudaMemcpyAsync(&byte, block + 1, 1, cudaMemcpyDeviceToHost, stream));
        MUST(cudaFreeAsync(block, stream));
        MUST(cudaStreamSynchronize(stream));
        wrong[me] += byte != (unsigned char)i;
    }
    MUST(cudaStreamDestroy(stream));
    return NULL;
}

int main(void)
{
    pthread_t threads[CAPTURERS + OTHERS];
    MUST(cudaFree(0));
    for (int i = 0; i < CAPTURERS + OTHERS; i++)
        pthread_create(&threads[i], NULL, i < CAPTURERS ? capture : allocate, (void *)(intptr_t)i);
    for (int i = 0; i < CAPTURERS + OTHERS; i++) {
        pthread_join(threads[i], NULL);
        printf("thread %d: %u\n", i, wrong[i]);
        FACT(wrong[i] == 0);
    }
    SHOW(cudaDeviceSynchronize());
    return 0;
}
