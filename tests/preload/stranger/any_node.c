/* Graphs made by the one call for nodes of every type, as newer programs make them. Memory of the graph's own stands beside
   plain memory that is freed while the graph lives. There are events inside, a child, and changes of nodes before and
   after instantiation. */
#include "stranger.h"

enum { BYTES = 3 << 20 };

static cudaGraphNode_t add(cudaGraph_t graph, const cudaGraphNode_t *before, size_t count,
    struct cudaGraphNodeParams *params)
{
    cudaGraphNode_t node;
#if CUDART_VERSION >= 13000
    MUST(cudaGraphAddNode(&node, graph, before, NULL, count, params));
#else
    MUST(cudaGraphAddNode(&node, graph, before, count, params));
#endif
    return node;
}

static struct cudaGraphNodeParams set_of(void *to, unsigned value)
{
    struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeMemset};
    params.memset.dst = to;
    params.memset.value = value;
    params.memset.elementSize = 1;
    params.memset.width = BYTES;
    params.memset.height = 1;
    return params;
}

static struct cudaGraphNodeParams copy_of(void *to, void *from)
{
    struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeMemcpy};
    params.memcpy.copyParams.srcPtr = make_cudaPitchedPtr(from, BYTES, BYTES, 1);
    params.memcpy.copyParams.dstPtr = make_cudaPitchedPtr(to, BYTES, BYTES, 1);
    params.memcpy.copyParams.extent = make_cudaExtent(BYTES, 1, 1);
    params.memcpy.copyParams.kind = cudaMemcpyDeviceToDevice;
    return params;
}

static void CUDART_CB count_up(void *counter)
{
    ++*(int *)counter;
}

static unsigned char byte_of(const unsigned char *from, cudaStream_t stream)
{
    unsigned char byte = 0;
    MUST(cudaMemcpyAsync(&byte, from + BYTES - 1, 1, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    return byte;
}

/* alloc -> set -> copy -> free, with a function of the host and events beside. */
static void with_memory(cudaStream_t stream, unsigned char *result)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begun, done;
    int counter = 0;
    MUST(cudaEventCreate(&begun));
    MUST(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    MUST(cudaGraphCreate(&graph, 0));
    struct cudaGraphNodeParams memory = {.type = cudaGraphNodeTypeMemAlloc};
    memory.alloc.bytesize = BYTES;
    memory.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
    memory.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
    cudaGraphNode_t allocated = add(graph, NULL, 0, &memory);
    FACT(memory.alloc.dptr != NULL);
    struct cudaGraphNodeParams set = set_of(memory.alloc.dptr, 21), copy = copy_of(result, memory.alloc.dptr);
    cudaGraphNode_t filled = add(graph, &allocated, 1, &set), copied = add(graph, &filled, 1, &copy);
    struct cudaGraphNodeParams gone = {.type = cudaGraphNodeTypeMemFree}, host = {.type = cudaGraphNodeTypeHost};
    gone.free.dptr = memory.alloc.dptr;
    host.host.fn = count_up;
    host.host.userData = &counter;
    add(graph, &copied, 1, &gone);
    cudaGraphNode_t counted = add(graph, &copied, 1, &host);
    struct cudaGraphNodeParams wait = {.type = cudaGraphNodeTypeWaitEvent},
                               record = {.type = cudaGraphNodeTypeEventRecord};
    wait.eventWait.event = begun;
    record.eventRecord.event = done;
    add(graph, NULL, 0, &wait);
    add(graph, &counted, 1, &record);
    size_t nodes = 0;
    MUST(cudaGraphGetNodes(graph, NULL, &nodes));
    printf("%zu nodes\n", nodes);
    set.memset.value = 22;
    SHOW(cudaGraphNodeSetParams(filled, &set));
    SHOW(cudaGraphNodeSetParams(allocated, &memory));
    (void)cudaGetLastError();
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 5; i++) {
        unsigned char *other;
        MUST(cudaEventRecord(begun, stream));
        MUST(cudaGraphLaunch(exec, stream));
        MUST(cudaMalloc((void **)&other, BYTES));
        MUST(cudaMemsetAsync(other, 1, BYTES, stream));
        MUST(cudaFree(other));
        MUST(cudaEventSynchronize(done));
        printf("%d after %d\n", byte_of(result, stream), counter);
        set.memset.value = 30 + (unsigned)i;
        SHOW(cudaGraphExecNodeSetParams(exec, filled, &set));
    }
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaEventDestroy(begun));
    MUST(cudaEventDestroy(done));
}

/* Work on plain memory in a child; what the exec is given later is another block, and the first is freed. */
static void with_a_child(cudaStream_t stream, unsigned char *result)
{
    cudaGraph_t graph, child;
    cudaGraphExec_t exec;
    unsigned char *first, *second;
    MUST(cudaMalloc((void **)&first, BYTES));
    MUST(cudaMalloc((void **)&second, BYTES));
    MUST(cudaMemset(second, 44, BYTES));
    MUST(cudaDeviceSynchronize()); /* the stream waits for no other */
    MUST(cudaGraphCreate(&child, 0));
    MUST(cudaGraphCreate(&graph, 0));
    struct cudaGraphNodeParams set = set_of(first, 43), copy = copy_of(result, first);
    add(child, NULL, 0, &set);
    struct cudaGraphNodeParams inner = {.type = cudaGraphNodeTypeGraph}, nothing = {.type = cudaGraphNodeTypeEmpty};
    inner.graph.graph = child;
    cudaGraphNode_t whole = add(graph, NULL, 0, &inner), between = add(graph, &whole, 1, &nothing),
                    copied = add(graph, &between, 1, &copy);
    MUST(cudaGraphDestroy(child));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphLaunch(exec, stream));
    printf("%d from the child\n", byte_of(result, stream));
    copy = copy_of(result, second);
    SHOW(cudaGraphExecNodeSetParams(exec, copied, &copy));
    MUST(cudaGraphLaunch(exec, stream));
    printf("%d from the second\n", byte_of(result, stream));
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    SHOW(cudaFree(first));
    SHOW(cudaFree(second));
}

int main(void)
{
    cudaStream_t stream;
    unsigned char *result;
    struct cudaGraphNodeParams none = {.type = cudaGraphNodeTypeCount};
    cudaGraph_t graph;
    cudaGraphNode_t node;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&result, BYTES));
    with_memory(stream, result);
    with_a_child(stream, result);
    MUST(cudaGraphCreate(&graph, 0));
#if CUDART_VERSION >= 13000
    FACT(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &none) != cudaSuccess);
#else
    FACT(cudaGraphAddNode(&node, graph, NULL, 0, &none) != cudaSuccess);
#endif
    MUST(cudaGraphDestroy(graph));
    SHOW(cudaFree(result));
    SHOW(cudaStreamDestroy(stream));
    return 0;
}
