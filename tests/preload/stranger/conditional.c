/* Graphs with conditional nodes, filled by hand and by captures, over plain memory that is allocated anew for each
   graph and freed while others run; and what an executable with memory of its own says to an update. */
#include "stranger.h"

enum { BYTES = 2 << 20 };

static cudaStream_t stream;

static cudaGraphNode_t add(cudaGraph_t graph, struct cudaGraphNodeParams *params)
{
    cudaGraphNode_t node;
#if CUDART_VERSION >= 13000
    MUST(cudaGraphAddNode(&node, graph, NULL, NULL, 0, params));
#else
    MUST(cudaGraphAddNode(&node, graph, NULL, 0, params));
#endif
    return node;
}

static struct cudaGraphNodeParams condition(cudaGraph_t graph, unsigned value, enum cudaGraphConditionalNodeType type,
    unsigned size)
{
    struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeConditional};
    MUST(cudaGraphConditionalHandleCreate(&params.conditional.handle, graph, value, cudaGraphCondAssignDefault));
    params.conditional.type = type;
    params.conditional.size = size;
    return params;
}

static void set_by_hand(cudaGraph_t graph, void *to, unsigned value)
{
    cudaGraphNode_t node;
    struct cudaMemsetParams set = {.dst = to, .value = value, .elementSize = 1, .width = BYTES, .height = 1};
    MUST(cudaGraphAddMemsetNode(&node, graph, NULL, 0, &set));
}

static void set_by_capture(cudaGraph_t graph, void *to, int value)
{
    cudaGraph_t same;
    MUST(cudaStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, cudaStreamCaptureModeThreadLocal));
    MUST(cudaMemsetAsync(to, value, BYTES, stream));
    MUST(cudaStreamEndCapture(stream, &same));
    FACT(same == graph);
}

static int last_of(const unsigned char *buffer)
{
    unsigned char byte = 0;
    MUST(cudaMemcpyAsync(&byte, buffer + BYTES - 1, 1, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    return byte;
}

static void run(cudaGraph_t graph, unsigned char *result)
{
    cudaGraphExec_t exec;
    unsigned char *beside;
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    SHOW(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++) {
        MUST(cudaMemsetAsync(result, 1, BYTES, stream));
        MUST(cudaGraphLaunch(exec, stream));
        MUST(cudaMalloc((void **)&beside, BYTES));
        MUST(cudaMemsetAsync(beside, 99, BYTES, stream));
        MUST(cudaFree(beside));
        printf("%d\n", last_of(result));
    }
    SHOW(cudaGraphExecDestroy(exec));
}

static void either(unsigned value)
{
    cudaGraph_t graph;
    unsigned char *result;
    MUST(cudaMalloc((void **)&result, BYTES));
    MUST(cudaGraphCreate(&graph, 0));
    struct cudaGraphNodeParams params = condition(graph, value, cudaGraphCondTypeIf, 2);
    add(graph, &params);
    set_by_hand(params.conditional.phGraph_out[0], result, 11);
    set_by_capture(params.conditional.phGraph_out[1], result, 12);
    SHOW(cudaGraphDestroy(params.conditional.phGraph_out[0]));
    (void)cudaGetLastError();
    run(graph, result);
    SHOW(cudaFree(result));
}

static void one_of_three(unsigned value)
{
    cudaGraph_t graph;
    unsigned char *result;
    MUST(cudaMalloc((void **)&result, BYTES));
    MUST(cudaGraphCreate(&graph, 0));
    struct cudaGraphNodeParams params = condition(graph, value, cudaGraphCondTypeSwitch, 3), inner;
    add(graph, &params);
    for (int i = 0; i < 2; i++)
        set_by_capture(params.conditional.phGraph_out[i], result, 20 + i);
    inner = condition(params.conditional.phGraph_out[2], 1, cudaGraphCondTypeIf, 1); /* one inside the other */
    add(params.conditional.phGraph_out[2], &inner);
    set_by_hand(inner.conditional.phGraph_out[0], result, 22);
    run(graph, result);
    SHOW(cudaFree(result));
}

static void never(void)
{
    cudaGraph_t graph;
    unsigned char *result;
    MUST(cudaMalloc((void **)&result, BYTES));
    MUST(cudaGraphCreate(&graph, 0));
    struct cudaGraphNodeParams params = condition(graph, 0, cudaGraphCondTypeWhile, 1);
    add(graph, &params);
    set_by_capture(params.conditional.phGraph_out[0], result, 30);
    run(graph, result);
    SHOW(cudaFree(result));
}

static cudaGraph_t with_memory(unsigned char *result, int value, size_t bytes)
{
    cudaGraph_t graph;
    unsigned char *inside;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(cudaMallocAsync((void **)&inside, bytes, stream));
    MUST(cudaMemsetAsync(inside, value, bytes, stream));
    MUST(cudaMemcpyAsync(result, inside, BYTES, cudaMemcpyDeviceToDevice, stream));
    MUST(cudaFreeAsync(inside, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    return graph;
}

/* Memory of a graph's own can't be changed: the executable stays as it was. */
static void updates(void)
{
    unsigned char *result;
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info = {0};
    MUST(cudaMalloc((void **)&result, BYTES));
    cudaGraph_t graph = with_memory(result, 41, BYTES), other = with_memory(result, 42, 2 * BYTES);
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    SHOW(cudaGraphExecUpdate(exec, other, &info));
    FACT(info.result != cudaGraphExecUpdateSuccess && info.errorNode);
    SHOW(cudaGetLastError());
    MUST(cudaGraphLaunch(exec, stream));
    printf("%d\n", last_of(result));
    SHOW(cudaGraphDestroy(other));
    SHOW(cudaGraphExecDestroy(exec));
    SHOW(cudaGraphDestroy(graph));
    SHOW(cudaFree(result));
}

int main(void)
{
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    either(0);
    either(1);
    for (unsigned value = 0; value < 4; value++)
        one_of_three(value);
    never();
    updates();
    return 0;
}
