/* What becomes of a graph: clones, children, updates of an executable, launches after the original is gone. The buffers
   that it works on are the program's, and live as long. */
#include "stranger.h"

enum { BYTES = 500000 };

static cudaGraph_t capture(cudaStream_t stream, unsigned char *to, const unsigned char *from, int value)
{
    cudaGraph_t graph = NULL;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(cudaMemsetAsync((void *)(uintptr_t)from, value, BYTES, stream));
    MUST(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    return graph;
}

static int last_of(const unsigned char *buffer)
{
    unsigned char byte = 0;
    MUST(cudaMemcpy(&byte, buffer + BYTES - 1, 1, cudaMemcpyDeviceToHost));
    return byte;
}

int main(void)
{
    cudaStream_t stream;
    cudaGraph_t first, second, clone, parent;
    cudaGraphNode_t child;
    cudaGraphExec_t exec, nested;
    cudaGraphExecUpdateResultInfo info;
    unsigned char *buffer[3], *extra;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 3; i++)
        MUST(cudaMalloc((void **)&buffer[i], BYTES));
    first = capture(stream, buffer[1], buffer[0], 11);
    second = capture(stream, buffer[2], buffer[0], 22);
    MUST(cudaGraphClone(&clone, first));
    MUST(cudaGraphCreate(&parent, 0));
    MUST(cudaGraphAddChildGraphNode(&child, parent, NULL, 0, second));
    MUST(cudaGraphInstantiate(&exec, first, 0));
    MUST(cudaGraphInstantiate(&nested, parent, 0));
    SHOW(cudaGraphDestroy(first));
    SHOW(cudaGraphDestroy(parent));
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaStreamSynchronize(stream));
    printf("first %d\n", last_of(buffer[1]));
    for (int i = 0; i < 20; i++) {
        MUST(cudaMalloc((void **)&extra, BYTES));
        MUST(cudaMemset(extra, 99, BYTES));
        MUST(cudaFree(extra));
    }
    MUST(cudaGraphLaunch(nested, stream));
    MUST(cudaStreamSynchronize(stream));
    printf("nested %d\n", last_of(buffer[2]));
    SHOW(cudaGraphExecUpdate(exec, second, &info));
    SHOW(cudaGraphDestroy(second));
    MUST(cudaMemset(buffer[2], 0, BYTES));
    MUST(cudaDeviceSynchronize()); /* the host has not waited for it, nor does the stream */
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaGraphLaunch(exec, stream));
    SHOW(cudaGraphExecDestroy(exec)); /* with a launch under way */
    MUST(cudaStreamSynchronize(stream));
    printf("updated %d\n", last_of(buffer[2]));
    MUST(cudaGraphInstantiate(&exec, clone, 0));
    SHOW(cudaGraphDestroy(clone));
    MUST(cudaMemset(buffer[1], 0, BYTES));
    MUST(cudaDeviceSynchronize());
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaStreamSynchronize(stream));
    printf("clone %d\n", last_of(buffer[1]));
    SHOW(cudaGraphExecDestroy(exec));
    SHOW(cudaGraphExecDestroy(nested));
    for (int i = 0; i < 3; i++)
        SHOW(cudaFree(buffer[i]));
    SHOW(cudaStreamDestroy(stream));
    SHOW(cudaGetLastError());
    return 0;
}
