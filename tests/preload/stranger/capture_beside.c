/* One thread captures, in modes that are its own affair, and launches; others allocate, work and free as ever, in the
   same context and on another device. */
#include "stranger.h"

#include <pthread.h>
#include <stdatomic.h>

enum { OTHERS = 3, ROUNDS = 120, BYTES = 60000 };

static atomic_int wrong, done;

static void *beside(void *number)
{
    int me = (int)(intptr_t)number, devices = 0;
    enum cudaStreamCaptureMode mode = me ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal;
    cudaStream_t stream;
    MUST(cudaGetDeviceCount(&devices));
    MUST(cudaSetDevice(me == OTHERS - 1 ? devices - 1 : 0));
    MUST(cudaThreadExchangeStreamCaptureMode(&mode));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; !done || i < ROUNDS; i++) {
        unsigned char *a, *b, byte = 0;
        MUST(cudaMalloc((void **)&a, BYTES));
        MUST(cudaMalloc((void **)&b, BYTES));
        MUST(cudaMemsetAsync(a, i, BYTES, stream));
        MUST(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, stream));
        MUST(cudaFree(a));
        MUST(cudaMemcpyAsync(&byte, b + BYTES - 1, 1, cudaMemcpyDeviceToHost, stream));
        MUST(cudaStreamSynchronize(stream));
        wrong += byte != (unsigned char)i;
        MUST(cudaFree(b));
    }
    MUST(cudaStreamDestroy(stream));
    return NULL;
}

static void capture(cudaStream_t stream, unsigned char *a, unsigned char *b, int i)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned char byte = 0;
    MUST(cudaStreamBeginCapture(stream, i % 2 ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal));
    MUST(cudaMemsetAsync(a, i, BYTES, stream));
    for (int k = 0; k < 20; k++)
        MUST(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaMemcpyAsync(&byte, b + 5, 1, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    wrong += byte != (unsigned char)i;
    MUST(cudaGraphExecDestroy(exec));
}

int main(void)
{
    pthread_t thread[OTHERS];
    cudaStream_t stream;
    unsigned char *a, *b;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&a, BYTES));
    MUST(cudaMalloc((void **)&b, BYTES));
    for (intptr_t i = 0; i < OTHERS; i++)
        pthread_create(&thread[i], NULL, beside, (void *)i);
    for (int i = 0; i < 4 * ROUNDS; i++)
        capture(stream, a, b, i);
    done = 1;
    for (int i = 0; i < OTHERS; i++)
        pthread_join(thread[i], NULL);
    printf("%d wrong\n", wrong);
    SHOW(cudaFree(a));
    SHOW(cudaFree(b));
    SHOW(cudaDeviceSynchronize());
    return 0;
}
