/* Graphs that allocate and free for themselves, launched while plain memory comes and goes. */
#include "stranger.h"

enum { BYTES = 900000 };

int main(void)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned char *inside, *outside, *other, byte = 0;
    unsigned wrong = 0;
    size_t nodes = 0;
    uint64_t used = 99;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&outside, BYTES));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    MUST(cudaMallocAsync((void **)&inside, BYTES, stream));
    MUST(cudaMemsetAsync(inside, 0x5c, BYTES, stream));
    MUST(cudaMemcpyAsync(outside, inside, BYTES, cudaMemcpyDeviceToDevice, stream));
    MUST(cudaFreeAsync(inside, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphGetNodes(graph, NULL, &nodes));
    printf("%zu nodes\n", nodes);
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 40; i++) {
        MUST(cudaMemsetAsync(outside, i, BYTES, stream));
        MUST(cudaGraphLaunch(exec, stream));
        MUST(cudaMalloc((void **)&other, BYTES));
        MUST(cudaMemset(other, i, BYTES));
        MUST(cudaMemcpyAsync(&byte, outside + BYTES - 1, 1, cudaMemcpyDeviceToHost, stream));
        MUST(cudaStreamSynchronize(stream));
        wrong += byte != 0x5c;
        MUST(cudaMemcpy(&byte, other + 1, 1, cudaMemcpyDeviceToHost));
        wrong += byte != i;
        MUST(cudaFree(other));
    }
    printf("%u wrong\n", wrong);
    SHOW(cudaGraphExecDestroy(exec));
    SHOW(cudaGraphDestroy(graph));
    SHOW(cudaDeviceGraphMemTrim(0));
    MUST(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
    FACT(used == 0);
    SHOW(cudaFree(outside));
    SHOW(cudaStreamDestroy(stream));
    return 0;
}
