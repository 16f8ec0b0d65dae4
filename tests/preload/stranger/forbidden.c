/* What a live capture forbids, in each mode: frees, queries and waits, and what they do to it. */
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
