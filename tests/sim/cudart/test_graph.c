/* Captures and graphs through the runtime. */
#include "cudart_test.h"

#include <stdatomic.h>

static atomic_uint calls;

static void count(void *unused)
{
    (void)unused;
    atomic_fetch_add(&calls, 1);
}

static void a_captured_graph_is_launched_again_and_again(void **state)
{
    (void)state;
    CUstream stream, side;
    CUevent fork, join;
    CUgraph graph;
    CUgraphExec exec;
    unsigned char *memory, there[64] = {0};
    ok(cudaStreamCreateWithFlags(&stream, CU_STREAM_NON_BLOCKING));
    ok(cudaStreamCreateWithFlags(&side, CU_STREAM_NON_BLOCKING));
    ok(cudaEventCreateWithFlags(&fork, CU_EVENT_DISABLE_TIMING));
    ok(cudaEventCreateWithFlags(&join, CU_EVENT_DISABLE_TIMING));
    ok(cudaMalloc((void **)&memory, 64));
    ok(cudaStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cudaMemsetAsync(memory, 9, 64, stream));
    ok(cudaEventRecord(fork, stream));
    ok(cudaStreamWaitEvent(side, fork, 0));
    ok(cudaLaunchHostFunc(side, count, NULL));
    ok(cudaEventRecord(join, side));
    ok(cudaMemcpyAsync(there, memory, 64, COPY_DEVICE_TO_HOST, stream));
    ok(cudaStreamWaitEvent(stream, join, 0));
    ok(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    ok(cudaGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 3);
    ok(cudaGraphInstantiate(&exec, graph, 0));
    ok(cudaGraphLaunch(exec, stream));
    ok(cudaGraphLaunch(exec, stream));
    ok(cudaStreamSynchronize(stream));
    assert_int_equal(there[63], 9);
    assert_int_equal(atomic_load(&calls), 2);
    CUgraphExecUpdateResultInfo info;
    ok(cudaGraphExecUpdate(exec, graph, &info));
    ok(cudaGraphExecDestroy(exec));
    ok(cudaGraphDestroy(graph));
    ok(cudaFree(memory));
    ok(cudaEventDestroy(fork));
    ok(cudaEventDestroy(join));
    ok(cudaStreamDestroy(stream));
    ok(cudaStreamDestroy(side));
}

static void an_allocation_ruins_a_global_capture(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph;
    void *memory;
    ok(cudaStreamCreate(&stream));
    ok(cudaStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    expect_error((cudaError_t)CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cudaMalloc(&memory, 64));
    expect_error((cudaError_t)CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cudaStreamEndCapture(stream, &graph));
    assert_null(graph);
    cudaGetLastError();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ok(cudaStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cudaThreadExchangeStreamCaptureMode(&mode));
    ok(cudaMalloc(&memory, 64));
    ok(cudaThreadExchangeStreamCaptureMode(&mode));
    ok(cudaStreamEndCapture(stream, &graph));
    ok(cudaGraphDestroy(graph));
    ok(cudaFree(memory));
    ok(cudaStreamDestroy(stream));
}

static void graphs_are_built_by_hand(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode set, copy, call;
    unsigned there = 0;
    void *memory;
    ok(cudaMalloc(&memory, 64));
    ok(cudaGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = (CUdeviceptr)(uintptr_t)memory, .value = 77, .elementSize = 4, .width = 2, .height = 1};
    ok(cudaGraphAddMemsetNode(&set, graph, NULL, 0, &fill));
    ok(cudaGraphAddMemcpyNode1D(&copy, graph, &set, 1, &there, memory, 4, COPY_DEVICE_TO_HOST));
    ok(cudaGraphAddHostNode(&call, graph, NULL, 0, &(CUDA_HOST_NODE_PARAMS){count, NULL}));
#if CUDART_MAJOR == 12
    ok(cudaGraphAddDependencies(graph, &copy, &call, 1));
#else
    ok(cudaGraphAddDependencies(graph, &copy, &call, NULL, 1));
#endif
    atomic_store(&calls, 0);
    ok(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cudaGraphLaunch(exec, NULL));
    ok(cudaDeviceSynchronize());
    assert_int_equal(there, 77);
    assert_int_equal(atomic_load(&calls), 1);
    expect_error(cudaErrorInvalidValue, cudaGraphAddKernelNode(&call, graph, NULL, 0, NULL));
    cudaGetLastError();
    ok(cudaGraphExecDestroy(exec));
    ok(cudaGraphDestroy(graph));
    ok(cudaFree(memory));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_captured_graph_is_launched_again_and_again),
        cmocka_unit_test(an_allocation_ruins_a_global_capture),
        cmocka_unit_test(graphs_are_built_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
