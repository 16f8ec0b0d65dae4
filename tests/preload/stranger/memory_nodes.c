/* Graphs with memory nodes, made by hand and captured, beside plain memory; their footprint, launched several times,
   and memory that one graph allocates and another frees. */
#include "stranger.h"

enum { BYTES = 4 << 20 };

static uint64_t footprint(enum cudaGraphMemAttributeType which)
{
    uint64_t value = 0;
    MUST(cudaDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

static cudaGraphExec_t by_hand(unsigned char *result)
{
    cudaGraph_t graph;
    cudaGraphNode_t allocate, set, copy, release;
    cudaGraphExec_t exec;
    struct cudaMemAllocNodeParams memory = {.bytesize = BYTES,
        .poolProps = {.allocType = cudaMemAllocationTypePinned,
            .location = {.type = cudaMemLocationTypeDevice, .id = 0}}};
    MUST(cudaGraphCreate(&graph, 0));
    MUST(cudaGraphAddMemAllocNode(&allocate, graph, NULL, 0, &memory));
    struct cudaMemsetParams fill_it = {.dst = memory.dptr, .elementSize = 1, .height = 1, .width = BYTES, .value = 77};
    MUST(cudaGraphAddMemsetNode(&set, graph, &allocate, 1, &fill_it));
    MUST(cudaGraphAddMemcpyNode1D(&copy, graph, &set, 1, result, memory.dptr, BYTES, cudaMemcpyDeviceToDevice));
    MUST(cudaGraphAddMemFreeNode(&release, graph, &copy, 1, memory.dptr));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    return exec;
}

static cudaGraphExec_t captured(cudaStream_t stream, unsigned char *result)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned char *inside;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    MUST(cudaMallocAsync((void **)&inside, BYTES, stream));
    MUST(cudaMemsetAsync(inside, 88, BYTES, stream));
    MUST(cudaMemcpyAsync(result, inside, BYTES, cudaMemcpyDeviceToDevice, stream));
    MUST(cudaFreeAsync(inside, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    return exec;
}

/* Allocated by a launch, used and freed by the stream afterwards. */
static void left_over(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned char *inside, byte = 0;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(cudaMallocAsync((void **)&inside, BYTES, stream));
    MUST(cudaMemsetAsync(inside, 99, BYTES, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int i = 0; i < 3; i++)
        MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaMemcpyAsync(&byte, inside + BYTES - 1, 1, cudaMemcpyDeviceToHost, stream));
    SHOW(cudaFreeAsync(inside, stream));
    MUST(cudaStreamSynchronize(stream));
    printf("left %d\n", byte);
    SHOW(cudaGraphExecDestroy(exec));
    SHOW(cudaGraphDestroy(graph));
}

int main(void)
{
    cudaStream_t stream;
    unsigned char *result, *plain, byte = 0;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&result, BYTES));
    cudaGraphExec_t exec[2] = {by_hand(result), captured(stream, result)};
    for (int i = 0; i < 6; i++) {
        MUST(cudaGraphLaunch(exec[i % 2], stream));
        MUST(cudaMalloc((void **)&plain, BYTES));
        MUST(cudaMemsetAsync(plain, 1, BYTES, stream));
        MUST(cudaMemcpyAsync(&byte, result + 12345, 1, cudaMemcpyDeviceToHost, stream));
        MUST(cudaFree(plain));
        MUST(cudaStreamSynchronize(stream));
        printf("byte %d\n", byte);
    }
    FACT(footprint(cudaGraphMemAttrUsedMemCurrent) == 0);
    FACT(footprint(cudaGraphMemAttrReservedMemHigh) >= BYTES);
    SHOW(cudaDeviceGraphMemTrim(0));
    left_over(stream);
    SHOW(cudaGraphExecDestroy(exec[0]));
    SHOW(cudaGraphExecDestroy(exec[1]));
    SHOW(cudaDeviceGraphMemTrim(0));
    FACT(footprint(cudaGraphMemAttrReservedMemCurrent) == 0);
    SHOW(cudaFree(result));
    SHOW(cudaStreamDestroy(stream));
    return 0;
}
