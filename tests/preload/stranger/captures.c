/* Captures and graphs as frameworks use them: warm up, capture in several streams, replay, allocate relaxed. */
#include "stranger.h"

enum { BYTES = 1 << 20 };

static volatile int calls;

static void CUDART_CB call(void *unused)
{
    (void)unused;
    calls = calls + 1;
}

int main(void)
{
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec;
    size_t nodes = 0;
    void *memory, *more;
    static unsigned char there[BYTES];
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    MUST(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    MUST(cudaMalloc(&memory, BYTES));
    MUST(cudaDeviceSynchronize());

    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    MUST(cudaMemsetAsync(memory, 3, BYTES, a));
    MUST(cudaEventRecord(fork, a));
    MUST(cudaStreamWaitEvent(b, fork, 0));
    MUST(cudaMemcpyAsync(there, memory, BYTES, cudaMemcpyDeviceToHost, b));
    MUST(cudaLaunchHostFunc(a, call, NULL));
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    MUST(cudaThreadExchangeStreamCaptureMode(&mode));
    MUST(cudaMalloc(&more, BYTES));
    MUST(cudaThreadExchangeStreamCaptureMode(&mode));
    MUST(cudaMemsetAsync(more, 4, BYTES, a));
    MUST(cudaEventRecord(join, b));
    MUST(cudaStreamWaitEvent(a, join, 0));
    MUST(cudaStreamEndCapture(a, &graph));
    MUST(cudaGraphGetNodes(graph, NULL, &nodes));
    printf("%zu nodes, %d calls\n", nodes, calls);
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++)
        MUST(cudaGraphLaunch(exec, a));
    MUST(cudaStreamSynchronize(a));
    FACT(there[0] == 3 && there[BYTES - 1] == 3);
    printf("%d calls\n", calls);
    MUST(cudaMemcpy(there, more, BYTES, cudaMemcpyDeviceToHost));
    FACT(there[BYTES - 1] == 4);

    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    SHOW(cudaStreamSynchronize(a));
    SHOW(cudaStreamEndCapture(a, &graph));
    SHOW(cudaGetLastError());
    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    MUST(cudaEventRecord(fork, a));
    MUST(cudaStreamWaitEvent(b, fork, 0));
    MUST(cudaMemsetAsync(memory, 5, BYTES, b));
    SHOW(cudaStreamEndCapture(a, &graph));
    SHOW(cudaGetLastError());
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaFree(memory));
    MUST(cudaFree(more));
    MUST(cudaDeviceSynchronize());
    return 0;
}
