/* Memory that one graph allocates and something else frees: another graph, the stream, the host; each launched again
   before any of it has run. And graphs that are changed, destroyed and updated while they run. */
#include <stdatomic.h>
#include <unistd.h>

#include "stranger.h"

enum { BYTES = 3 << 20, LAUNCHES = 4 };

enum freed { BY_A_GRAPH, BY_THE_STREAM, BY_THE_HOST, AT_THE_NEXT_LAUNCH, WAYS };

static cudaStream_t stream;
static unsigned char *result;
static atomic_int let_through;

static void CUDART_CB gate(void *number)
{
    while (let_through < (int)(intptr_t)number)
        usleep(100);
}

static int last_of(const unsigned char *buffer)
{
    unsigned char byte = 0;
    MUST(cudaMemcpyAsync(&byte, buffer + BYTES - 1, 1, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    return byte;
}

static void allocated_and_freed(enum freed way)
{
    unsigned char *inside, *plain;
    cudaGraph_t maker, user;
    cudaGraphExec_t make, use;
    printf("way %d\n", (int)way);
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(cudaMallocAsync((void **)&inside, BYTES, stream));
    MUST(cudaMemsetAsync(inside, 40 + way, BYTES, stream));
    MUST(cudaStreamEndCapture(stream, &maker));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    MUST(cudaMemcpyAsync(result, inside, BYTES, cudaMemcpyDeviceToDevice, stream));
    if (way == BY_A_GRAPH)
        MUST(cudaFreeAsync(inside, stream));
    MUST(cudaStreamEndCapture(stream, &user));
    MUST(cudaGraphInstantiate(&make, maker, way == AT_THE_NEXT_LAUNCH ? cudaGraphInstantiateFlagAutoFreeOnLaunch : 0));
    MUST(cudaGraphInstantiate(&use, user, 0));
    for (int i = 0; i < LAUNCHES; i++) {
        SHOW(cudaGraphLaunch(make, stream));
        MUST(cudaMalloc((void **)&plain, BYTES));
        MUST(cudaMemsetAsync(plain, 5, BYTES, stream));
        SHOW(cudaGraphLaunch(use, stream));
        if (way == BY_THE_STREAM)
            SHOW(cudaFreeAsync(inside, stream));
        if (way == BY_THE_HOST)
            printf("%d\n", last_of(result));
        if (way == BY_THE_HOST)
            SHOW(cudaFree(inside));
        MUST(cudaFree(plain));
    }
    if (way != AT_THE_NEXT_LAUNCH) {
        MUST(cudaStreamSynchronize(stream));
        SHOW(cudaFreeAsync(inside, stream)); /* it has been */
        SHOW(cudaFree(inside));
    }
    SHOW(cudaGetLastError());
    printf("%d\n", last_of(result));
    SHOW(cudaGraphExecDestroy(make));
    SHOW(cudaGraphExecDestroy(use));
    SHOW(cudaGraphDestroy(maker));
    SHOW(cudaGraphDestroy(user));
    if (way == AT_THE_NEXT_LAUNCH)
        SHOW(cudaFree(inside));
}

static cudaGraph_t setting(unsigned char *to, unsigned value)
{
    cudaGraph_t graph;
    cudaGraphNode_t node;
    struct cudaMemsetParams set = {.dst = to, .value = value, .elementSize = 1, .width = BYTES, .height = 1};
    MUST(cudaGraphCreate(&graph, 0));
    MUST(cudaGraphAddMemsetNode(&node, graph, NULL, 0, &set));
    return graph;
}

static void update(cudaGraphExec_t exec, cudaGraph_t graph)
{
    cudaGraphExecUpdateResultInfo info = {0};
    SHOW(cudaGraphExecUpdate(exec, graph, &info));
    printf("result %d\n", (int)info.result);
    (void)cudaGetLastError();
}

static void while_it_runs(int round, unsigned char *other)
{
    cudaGraph_t first = setting(result, 20 + (unsigned)round), second = setting(other, 30 + (unsigned)round);
    cudaGraphExec_t exec;
    unsigned char *plain[8];
    MUST(cudaGraphInstantiate(&exec, first, 0));
    MUST(cudaLaunchHostFunc(stream, gate, (void *)(intptr_t)round));
    MUST(cudaGraphLaunch(exec, stream));
    update(exec, second);
    MUST(cudaGraphLaunch(exec, stream));
    SHOW(cudaGraphDestroy(first));
    SHOW(cudaGraphDestroy(second));
    if (round % 2)
        SHOW(cudaGraphExecDestroy(exec));
    for (int i = 0; i < 8; i++)
        MUST(cudaMalloc((void **)&plain[i], (size_t)(i + 1) * 300000));
    let_through = round;
    for (int i = 0; i < 8; i++)
        MUST(cudaFree(plain[i]));
    printf("%d\n", last_of(result));
    printf("%d\n", last_of(other));
    if (round % 2 == 0)
        SHOW(cudaGraphExecDestroy(exec));
}

int main(void)
{
    unsigned char *other;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&result, BYTES));
    MUST(cudaMalloc((void **)&other, BYTES));
    for (int way = 0; way < WAYS; way++)
        allocated_and_freed((enum freed)way);
    for (int round = 1; round <= 4; round++)
        while_it_runs(round, other);
    SHOW(cudaDeviceGraphMemTrim(0));
    SHOW(cudaFree(result));
    SHOW(cudaFree(other));
    return 0;
}
