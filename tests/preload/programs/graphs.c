/* Preloaded, on the simulator: memory handed out or freed in a capture belongs to its graph until that, its clones and
   its executables are gone; then it serves again. Captures come through unharmed whatever else allocates meanwhile. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "segalloc/segalloc.h"
#include "served.h"

enum { BYTES = 8 << 20 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

/* Settled are they by an allocation that has to look for memory. */
static uint64_t allocated_after_a_look(void)
{
    for (int i = 0; i < 20; i++) {
        CUdeviceptr look;
        usleep(1000);
        MUST(cuMemAlloc_v2(&look, 1 << 20));
        MUST(cuMemFree_v2(look));
    }
    return statistic(0, "allocations");
}

/* The same once it is what it is to be: the driver may take its time to say that a graph is gone. */
static uint64_t allocated_at_last(uint64_t expected)
{
    uint64_t allocated = allocated_after_a_look();
    for (int i = 0; i < 100 && allocated != expected; i++)
        allocated = allocated_after_a_look();
    return allocated;
}

static CUstream stream_of(void)
{
    CUstream stream = NULL;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* A graph that sets `memory`, and an executable of it. */
static CUgraph capture_set(CUstream stream, CUstreamCaptureMode mode, void **ret_inside, CUgraphExec *ret_exec)
{
    CUgraph graph = NULL;
    MUST(cuStreamBeginCapture_v2(stream, mode));
    *ret_inside = segalloc_malloc_on(BYTES, stream);
    EXPECT(*ret_inside != NULL);
    MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)*ret_inside, 7, BYTES, stream));
    MUST((CUresult)segalloc_free(*ret_inside));
    EXPECT(segalloc_free(*ret_inside) == CUDA_ERROR_INVALID_VALUE);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(ret_exec, graph, 0));
    return graph;
}

static void nobody_gets_what_a_graph_uses(CUstreamCaptureMode mode)
{
    CUstream stream = stream_of(), other = stream_of();
    void *inside, *taken[16];
    CUgraphExec exec;
    uint64_t before = allocated_after_a_look();
    CUgraph graph = capture_set(stream, mode, &inside, &exec), clone;
    EXPECT(statistic(0, "allocations") == before + 1);
    MUST(cuGraphClone(&clone, graph));
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphDestroy(clone));
    EXPECT(allocated_at_last(before + 1) == before + 1); /* the executable is still there */
    for (int i = 0; i < 16; i++) {
        taken[i] = segalloc_malloc_on(BYTES, other);
        EXPECT(taken[i] != inside && taken[i]);
        MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)taken[i], 1, BYTES, other));
        MUST(cuGraphLaunch(exec, stream));
    }
    unsigned char byte = 0;
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamSynchronize(other));
    for (int i = 0; i < 16; i++) {
        MUST(cuMemcpyDtoH_v2(&byte, (CUdeviceptr)(uintptr_t)taken[i], 1));
        EXPECT(byte == 1);
        MUST((CUresult)segalloc_free(taken[i]));
    }
    MUST(cuGraphExecDestroy(exec));
    EXPECT(allocated_at_last(before) == before);
    MUST(cuStreamDestroy_v2(stream));
    MUST(cuStreamDestroy_v2(other));
}

/* As above, but freed after the capture, and used as a child of another graph. */
static void a_child_graph_keeps_it_too(void)
{
    CUstream stream = stream_of();
    CUgraph graph = NULL, parent;
    CUgraphNode node;
    CUgraphExec exec;
    uint64_t before = allocated_after_a_look();
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    void *inside = segalloc_malloc_on(BYTES, stream);
    MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)inside, 7, BYTES, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphCreate(&parent, 0));
    MUST(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
    MUST(cuGraphInstantiateWithFlags(&exec, parent, 0));
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphDestroy(parent));
    MUST((CUresult)segalloc_free(inside));
    EXPECT(allocated_at_last(before + 1) == before + 1);
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuStreamSynchronize(stream));
    EXPECT(allocated_at_last(before) == before);
    MUST(cuStreamDestroy_v2(stream));
}

/* What is still in use when its graph goes is the program's as before. */
static void a_block_outlives_its_graph(void)
{
    CUstream stream = stream_of();
    CUgraph graph = NULL;
    uint64_t before = allocated_after_a_look();
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    void *inside = segalloc_malloc_on(BYTES, stream);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
    EXPECT(allocated_at_last(before + 1) == before + 1);
    MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)inside, 3, BYTES, stream));
    MUST((CUresult)segalloc_free(inside));
    MUST(cuStreamSynchronize(stream));
    EXPECT(allocated_at_last(before) == before);
    MUST(cuStreamDestroy_v2(stream));
}

/* A capture that fails leaves nothing behind. */
static void a_ruined_capture_gives_it_back(void)
{
    CUstream stream = stream_of();
    CUgraph graph = NULL;
    uint64_t before = allocated_after_a_look();
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    void *inside = segalloc_malloc_on(BYTES, stream);
    MUST((CUresult)segalloc_free(inside));
    EXPECT(cuStreamSynchronize(stream) != CUDA_SUCCESS);
    EXPECT(cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
    EXPECT(allocated_at_last(before) == before);
    MUST(cuStreamDestroy_v2(stream));
}

static void *torch_alloc(size_t bytes, CUstream stream)
{
    void *block = segalloc_torch_malloc(bytes, 0, stream);
    EXPECT(block != NULL);
    MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)block, 3, bytes, stream));
    return block;
}

/* PyTorch's own cache serves a capture again what the same stream has freed in it; so do we, and nobody else gets
   it. */
static void pytorch_has_memory_of_its_capture_again(void)
{
    CUstream stream = stream_of(), other = stream_of();
    CUevent event;
    CUgraph graph = NULL;
    CUgraphExec exec;
    uint64_t before = allocated_after_a_look();
    char policy[16] = "";
    segalloc_option("free_sync", policy, sizeof policy);
    const bool followed = strcmp(policy, "event") != 0; /* else nothing is known of who joins a capture */
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    void *outside = torch_alloc(BYTES, stream);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    void *first = torch_alloc(BYTES, stream);
    segalloc_torch_free(first, BYTES, 0, stream);
    for (int i = 0; i < 20; i++) {
        void *again = torch_alloc(BYTES - (size_t)(i % 2) * 100, stream);
        EXPECT((again == first) == followed);
        segalloc_torch_free(again, BYTES, 0, stream);
    }
    segalloc_torch_free(outside, BYTES, 0, stream); /* not this capture's */
    void *taken = torch_alloc(BYTES, stream), *more = torch_alloc(BYTES, stream),
         *larger = torch_alloc(2 * BYTES, stream);
    EXPECT((taken == first) == followed && more != first && more != outside && larger != first);
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamWaitEvent(other, event, 0)); /* from here on another stream may use what it is given */
    MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)more, 4, BYTES, other));
    segalloc_torch_free(more, BYTES, 0, stream);
    void *last = torch_alloc(BYTES, stream);
    EXPECT(last != more && last != taken);
    MUST(cuEventRecord(event, other));
    MUST(cuStreamWaitEvent(stream, event, 0));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    segalloc_torch_free(taken, BYTES, 0, stream);
    segalloc_torch_free(larger, 2 * BYTES, 0, stream);
    segalloc_torch_free(last, BYTES, 0, stream);
    void *strange[8];
    for (int i = 0; i < 8; i++) {
        strange[i] = torch_alloc(BYTES, i % 2 ? stream : other);
        EXPECT(strange[i] != first && strange[i] != more && strange[i] != last && strange[i] != larger);
        MUST(cuGraphLaunch(exec, stream));
    }
    for (int i = 0; i < 8; i++)
        segalloc_torch_free(strange[i], BYTES, 0, i % 2 ? stream : other);
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamSynchronize(other));
    MUST(cuGraphExecDestroy(exec));
    EXPECT(allocated_at_last(before) == before);
    MUST(cuEventDestroy_v2(event));
    MUST(cuStreamDestroy_v2(stream));
    MUST(cuStreamDestroy_v2(other));
}

/* Whether cudaFree waits as the driver's does. */
static bool is_strict(void)
{
    char policy[16] = "";
    segalloc_option("free_sync", policy, sizeof policy);
    return strcmp(policy, "auto") == 0 || strcmp(policy, "strict") == 0;
}

/* cudaFree in a capture: the driver's word, which is no, and ruins it, unless the capture is a relaxed one. A free that
   need not wait asks the driver nothing and takes effect later. */
static void frees_get_the_drivers_answer(void)
{
    CUstream stream = stream_of();
    CUgraph graph = NULL;
    CUdeviceptr block;
    uint64_t before = allocated_after_a_look();
    MUST(cuMemAlloc_v2(&block, BYTES));
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (is_strict()) {
        EXPECT(cuMemFree_v2(block) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    } else {
        MUST(cuMemFree_v2(block));
        EXPECT(cuMemFree_v2(block) == CUDA_ERROR_INVALID_VALUE);
        MUST(cuStreamEndCapture(stream, &graph));
        MUST(cuGraphDestroy(graph));
        MUST(cuMemAlloc_v2(&block, BYTES));
    }
    MUST(cuMemFree_v2(block));
    EXPECT(cuMemFree_v2(block) == CUDA_ERROR_INVALID_VALUE);

    MUST(cuMemAlloc_v2(&block, BYTES));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemFree_v2(block));
    EXPECT(cuMemFree_v2(block) == CUDA_ERROR_INVALID_VALUE);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuGraphDestroy(graph));
    EXPECT(allocated_at_last(before) == before); /* else whoever looks next takes it for what was there before */
    MUST(cuStreamDestroy_v2(stream));
}

static atomic_bool capture_open;

static void *capture_for_a_while(void *context)
{
    CUgraph graph = NULL;
    MUST(cuCtxSetCurrent(context));
    CUstream stream = stream_of();
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    capture_open = true;
    usleep(50000);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamDestroy_v2(stream));
    return NULL;
}

/* What is freed beside another thread's capture is had again by whoever needs it: once that has ended, if need be. */
static void frees_beside_a_capture_come_back(CUcontext context)
{
    enum { MOST = 512, HUGE_BYTES = 128 << 20 };
    CUdeviceptr block[MOST];
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    pthread_t thread;
    int got = 0;
    while (got < MOST && cuMemAlloc_v2(&block[got], HUGE_BYTES) == CUDA_SUCCESS)
        got++;
    EXPECT(got > 1 && got < MOST);
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT(pthread_create(&thread, NULL, capture_for_a_while, context) == 0);
    while (!capture_open)
        usleep(100);
    MUST(cuMemFree_v2(block[--got]));
    MUST(cuMemAlloc_v2(&block[got], HUGE_BYTES));
    pthread_join(thread, NULL);
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    for (int i = 0; i <= got; i++)
        MUST(cuMemFree_v2(block[i]));
}

/* More than tables have room for at first. */
static void many_blocks_and_many_graphs(void)
{
    enum { BLOCKS = 20000, GRAPHS = 4200 };
    static CUgraph graph[GRAPHS];
    CUstream stream = stream_of();
    CUgraph large = NULL;
    uint64_t before = allocated_after_a_look();
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < BLOCKS; i++)
        MUST((CUresult)segalloc_free(segalloc_malloc_on(512, stream)));
    MUST(cuStreamEndCapture(stream, &large));
    for (int i = 0; i < GRAPHS; i++) {
        MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST((CUresult)segalloc_free(segalloc_malloc_on(512, stream)));
        MUST(cuStreamEndCapture(stream, &graph[i]));
    }
    EXPECT(allocated_at_last(before + BLOCKS + GRAPHS) == before + BLOCKS + GRAPHS);
    for (int i = 0; i < GRAPHS; i++)
        MUST(cuGraphDestroy(graph[i]));
    EXPECT(allocated_at_last(before + BLOCKS) == before + BLOCKS);
    MUST(cuGraphDestroy(large));
    EXPECT(allocated_at_last(before) == before);
    MUST(cuStreamDestroy_v2(stream));
}

static atomic_bool stop;

/* Allocates and frees in stream order while the others capture, and gives everything back at times. */
static void *churn(void *context)
{
    unsigned seed = 1, round = 0;
    MUST(cuCtxSetCurrent(context));
    CUstream stream = stream_of();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    while (!stop) {
        void *block[8];
        for (int i = 0; i < 8; i++) {
            size_t bytes = 1 + (size_t)rand_r(&seed) % (BYTES / 4);
            block[i] = segalloc_malloc_on(bytes, stream);
            EXPECT(block[i] != NULL);
            MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)block[i], (unsigned char)i, bytes < 4096 ? bytes : 4096,
                stream));
        }
        for (int i = 0; i < 8; i++)
            MUST((CUresult)segalloc_free(block[i]));
        CUdeviceptr waits; /* in its free, for all that there is */
        MUST(cuMemAlloc_v2(&waits, 4096));
        MUST(cuMemFree_v2(waits));
        if (++round % 4 == 0)
            segalloc_torch_reset();
    }
    MUST(cuStreamSynchronize(stream));
    return NULL;
}

/* A block that the capture has freed serves it again. */
static void capture_and_spare(CUstream stream)
{
    CUgraph graph = NULL;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 4; i++)
        segalloc_torch_free(torch_alloc(4096, stream), 4096, 0, stream);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
}

static void *capture_often(void *context)
{
    MUST(cuCtxSetCurrent(context));
    CUstream stream = stream_of();
    for (int i = 0; i < 30; i++) {
        void *inside;
        CUgraphExec exec;
        CUgraph graph = capture_set(stream, (CUstreamCaptureMode)(i % 3), &inside, &exec);
        MUST(cuGraphLaunch(exec, stream));
        MUST(cuGraphExecDestroy(exec));
        MUST(cuGraphDestroy(graph));
        capture_and_spare(stream);
        usleep(2000);
    }
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* the other may be capturing still */
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuStreamSynchronize(stream));
    return NULL;
}

static void captures_go_on_beside_allocations(CUcontext context)
{
    pthread_t churning[2], capturing[2];
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&churning[i], NULL, churn, context) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&capturing[i], NULL, capture_often, context) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(capturing[i], NULL);
    stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(churning[i], NULL);
}

int main(void)
{
    CUcontext context;
    CUdeviceptr first;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&first, 4096));
    for (int mode = 0; mode < 3; mode++)
        nobody_gets_what_a_graph_uses((CUstreamCaptureMode)mode);
    a_child_graph_keeps_it_too();
    a_block_outlives_its_graph();
    a_ruined_capture_gives_it_back();
    pytorch_has_memory_of_its_capture_again();
    frees_get_the_drivers_answer();
    many_blocks_and_many_graphs();
    frees_beside_a_capture_come_back(context);
    captures_go_on_beside_allocations(context);
    return failures != 0;
}
