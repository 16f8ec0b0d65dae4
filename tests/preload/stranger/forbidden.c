/* What a live capture forbids, in each mode: allocations, frees, queries and waits, to whom, and what they do to it. */
#include <pthread.h>

#include "stranger.h"

static const char *const names[] = {"global", "thread-local", "relaxed"};

static void end(cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    SHOW(cudaStreamEndCapture(stream, &graph));
    if (graph)
        MUST(cudaGraphDestroy(graph));
    SHOW(cudaGetLastError());
}

/* Allocates as a thread in `mode`, one that has a capture itself or another. */
static void *allocate(void *mode)
{
    enum cudaStreamCaptureMode own = (enum cudaStreamCaptureMode)(uintptr_t)mode;
    unsigned char *block = NULL;
    size_t pitch;
    MUST(cudaThreadExchangeStreamCaptureMode(&own));
    cudaError_t error = cudaMalloc((void **)&block, MiB);
    printf("allocate %s: %s\n", names[(uintptr_t)mode], cudaGetErrorName(error));
    if (error != cudaSuccess)
        SHOW(cudaMallocPitch((void **)&block, &pitch, 100, 100));
    SHOW(cudaGetLastError());
    MUST(cudaThreadExchangeStreamCaptureMode(&own));
    return block;
}

static void allocate_beside(cudaStream_t stream, enum cudaStreamCaptureMode captured)
{
    for (uintptr_t mode = 0; mode < 3; mode++) {
        pthread_t thread;
        void *own, *other;
        MUST(cudaStreamBeginCapture(stream, captured));
        own = allocate((void *)mode);
        end(stream);
        MUST(cudaFree(own));
        MUST(cudaStreamBeginCapture(stream, captured));
        pthread_create(&thread, NULL, allocate, (void *)mode);
        pthread_join(thread, &other);
        end(stream);
        MUST(cudaFree(other));
    }
}

int main(void)
{
    cudaStream_t stream, beside;
    cudaEvent_t outside, inside;
    unsigned char *block;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&outside, cudaEventDisableTiming));
    MUST(cudaEventCreateWithFlags(&inside, cudaEventDisableTiming));
    MUST(cudaEventRecord(outside, beside));
    MUST(cudaStreamSynchronize(beside));
    for (int i = 0; i < 3; i++) {
        enum cudaStreamCaptureMode mode = i == 0   ? cudaStreamCaptureModeGlobal
                                          : i == 1 ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeRelaxed;
        printf("%s\n", names[i]);
        MUST(cudaMalloc((void **)&block, MiB));
        MUST(cudaStreamBeginCapture(stream, mode));
        SHOW(cudaFree(0));
        end(stream);
        MUST(cudaStreamBeginCapture(stream, mode));
        cudaError_t freed = cudaFree(block);
        printf("free: %s\n", cudaGetErrorName(freed));
        end(stream);
        if (freed != cudaSuccess)
            SHOW(cudaFree(block));
        MUST(cudaStreamBeginCapture(stream, mode));
        SHOW(cudaEventQuery(outside));
        end(stream);
        MUST(cudaStreamBeginCapture(stream, mode));
        SHOW(cudaStreamQuery(stream));
        end(stream);
        MUST(cudaStreamBeginCapture(stream, mode));
        MUST(cudaEventRecord(inside, stream));
        SHOW(cudaEventSynchronize(inside));
        end(stream);
        MUST(cudaStreamBeginCapture(stream, mode));
        SHOW(cudaDeviceSynchronize());
        end(stream);
        SHOW(cudaStreamQuery(beside));
        allocate_beside(stream, mode);
        MUST(cudaMalloc((void **)&block, MiB));
        MUST(cudaStreamBeginCapture(stream, mode));
        SHOW(cudaFreeAsync(block, stream)); /* a step of a graph can only free what is the graph's */
        end(stream);
        SHOW(cudaFree(block));
    }
    SHOW(cudaEventDestroy(outside));
    SHOW(cudaEventDestroy(inside));
    SHOW(cudaStreamDestroy(stream));
    SHOW(cudaStreamDestroy(beside));
    return 0;
}
