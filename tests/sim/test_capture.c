/* Stream captures: what becomes of work, what is prohibited meanwhile, and what ruins a capture. */
#include <pthread.h>
#include <stdatomic.h>

#include "sim_test.h"

static atomic_uint calls;

static void count(void *unused)
{
    (void)unused;
    atomic_fetch_add(&calls, 1);
}

static CUstream new_stream(unsigned flags)
{
    CUstream stream;
    ok(cuStreamCreate(&stream, flags));
    return stream;
}

static CUevent new_event(void)
{
    CUevent event;
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status;
    ok(cuStreamIsCapturing(stream, &status));
    return status;
}

static size_t nodes_of(CUgraph graph)
{
    size_t nodes;
    ok(cuGraphGetNodes(graph, NULL, &nodes));
    return nodes;
}

static void captured_work_runs_when_launched(void **state)
{
    (void)state;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    unsigned bytes[4] = {0};
    CUdeviceptr memory;
    CUgraph graph;
    CUgraphExec exec;
    ok(cuMemAlloc_v2(&memory, sizeof bytes));
    ok(cuMemsetD8_v2(memory, 0, sizeof bytes));
    atomic_store(&calls, 0);
    ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ok(cuMemsetD32Async(memory, 7, 4, stream));
    ok(cuMemcpyDtoHAsync_v2(bytes, memory, sizeof bytes, stream));
    ok(cuLaunchHostFunc(stream, count, NULL));
    ok(cuStreamEndCapture(stream, &graph));
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    ok(cuStreamSynchronize(stream));
    assert_int_equal(atomic_load(&calls), 0);
    assert_int_equal(nodes_of(graph), 3);
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cuGraphDestroy(graph));
    for (unsigned i = 1; i <= 3; i++) {
        ok(cuGraphLaunch(exec, stream));
        ok(cuStreamSynchronize(stream));
        assert_int_equal(atomic_load(&calls), i);
    }
    assert_int_equal(bytes[3], 7);
    ok(cuGraphExecDestroy(exec));
    ok(cuMemFree_v2(memory));
    ok(cuStreamDestroy_v2(stream));
}

static void streams_fork_and_join_by_events(void **state)
{
    (void)state;
    CUstream a = new_stream(0), b = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent fork = new_event(), join = new_event();
    CUgraph graph;
    ok(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ok(cuLaunchHostFunc(a, count, NULL));
    ok(cuEventRecord(fork, a));
    ok(cuStreamWaitEvent(b, fork, 0));
    assert_int_equal(status_of(b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ok(cuLaunchHostFunc(b, count, NULL));
    ok(cuLaunchHostFunc(a, count, NULL));
    ok(cuEventRecord(join, b));
    ok(cuStreamWaitEvent(a, join, 0));
    const CUgraphNode *tips;
    CUstreamCaptureStatus status;
    CUgraph live;
    cuuint64_t id_a, id_b;
    size_t tip_count;
    ok(cuStreamGetCaptureInfo_v2(a, &status, &id_a, &live, &tips, &tip_count));
    ok(cuStreamGetCaptureInfo_v2(b, &status, &id_b, NULL, NULL, NULL));
    assert_int_equal(tip_count, 2);
    assert_int_equal(id_a, id_b);
    expect_error(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(b, &graph));
    expect_error(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
    assert_null(graph);
    assert_int_equal(status_of(b), CU_STREAM_CAPTURE_STATUS_NONE);

    ok(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ok(cuEventRecord(fork, a));
    ok(cuStreamWaitEvent(b, fork, 0));
    ok(cuLaunchHostFunc(b, count, NULL));
    expect_error(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &graph));

    ok(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ok(cuEventRecord(fork, a));
    ok(cuStreamWaitEvent(b, fork, 0));
    ok(cuLaunchHostFunc(b, count, NULL));
    ok(cuEventRecord(join, b));
    ok(cuStreamWaitEvent(a, join, 0));
    ok(cuStreamEndCapture(a, &graph));
    assert_int_equal(nodes_of(graph), 1);
    ok(cuGraphDestroy(graph));
    ok(cuStreamQuery(b));
    ok(cuEventDestroy_v2(fork));
    ok(cuEventDestroy_v2(join));
    ok(cuStreamDestroy_v2(a));
    ok(cuStreamDestroy_v2(b));
}

static void what_a_capture_may_not_meet(void **state)
{
    (void)state;
    CUstream a = new_stream(0), b = new_stream(0);
    CUevent inside = new_event(), outside = new_event();
    CUgraph graph;
#define RUINED_BY(mode, code, call)                                                       \
    ok(cuStreamBeginCapture_v2(a, mode));                                                 \
    ok(cuEventRecord(inside, a));                                                         \
    expect_error(code, call);                                                             \
    assert_int_equal(status_of(a), CU_STREAM_CAPTURE_STATUS_INVALIDATED);                 \
    expect_error(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuLaunchHostFunc(a, count, NULL)); \
    expect_error(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph))
    const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL, relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr memory, other;
    ok(cuMemAlloc_v2(&memory, 64));
    ok(cuEventRecord(outside, b));
    RUINED_BY(relaxed, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(a));
    RUINED_BY(relaxed, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(a));
    RUINED_BY(relaxed, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    RUINED_BY(relaxed, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxRecordEvent(NULL, outside));
    RUINED_BY(relaxed, CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(inside));
    RUINED_BY(relaxed, CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(inside));
    RUINED_BY(relaxed, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(a, outside, 0));
    RUINED_BY(relaxed, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuLaunchHostFunc(NULL, count, NULL));
    RUINED_BY(relaxed, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamQuery(NULL));
    RUINED_BY(relaxed, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyHtoD_v2(memory, &other, 8));
    RUINED_BY(global, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&other, 64));
    RUINED_BY(global, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemFree_v2(memory));
    RUINED_BY(global, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(outside));
    RUINED_BY(relaxed, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemFreeAsync(memory, a));
    ok(cuStreamBeginCapture_v2(a, relaxed));
    ok(cuStreamBeginCapture_v2(b, relaxed));
    ok(cuEventRecord(inside, a));
    expect_error(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(b, inside, 0));
    expect_error(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
    expect_error(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(b, &graph));
    expect_error(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(inside));
    ok(cuEventRecord(inside, b));
    ok(cuEventSynchronize(inside));
    expect_error(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(a, &graph));
    expect_error(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, relaxed));
    ok(cuMemFree_v2(memory));
    ok(cuEventDestroy_v2(inside));
    ok(cuEventDestroy_v2(outside));
    ok(cuStreamDestroy_v2(a));
    ok(cuStreamDestroy_v2(b));
}

struct other_thread {
    CUcontext context;
    CUstream stream;
    CUstreamCaptureMode mode;
    CUresult alloc, end;
};

static void *in_another_thread(void *argument)
{
    struct other_thread *t = argument;
    CUgraph graph;
    CUdeviceptr memory = 0;
    ok(cuCtxSetCurrent(t->context));
    ok(cuThreadExchangeStreamCaptureMode(&t->mode));
    t->end = cuStreamEndCapture(t->stream, &graph);
    t->alloc = cuMemAlloc_v2(&memory, 64);
    if (t->alloc == CUDA_SUCCESS)
        ok(cuMemFree_v2(memory));
    return NULL;
}

static struct other_thread ask_another_thread(CUstream stream, CUstreamCaptureMode mode)
{
    struct other_thread t = {.stream = stream, .mode = mode};
    pthread_t thread;
    ok(cuCtxGetCurrent(&t.context));
    assert_int_equal(pthread_create(&thread, NULL, in_another_thread, &t), 0);
    pthread_join(thread, NULL);
    return t;
}

static void modes_say_whom_a_capture_concerns(void **state)
{
    (void)state;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    CUdeviceptr memory;
    struct other_thread t;
    ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    t = ask_another_thread(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    expect_error(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, t.end);
    ok(t.alloc);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ok(cuThreadExchangeStreamCaptureMode(&mode));
    ok(cuMemAlloc_v2(&memory, 64));
    ok(cuMemFree_v2(memory));
    ok(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    ok(cuStreamEndCapture(stream, &graph));
    ok(cuGraphDestroy(graph));

    ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    t = ask_another_thread(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    ok(t.alloc);
    t = ask_another_thread(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    expect_error(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, t.alloc);
    expect_error(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));

    ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    t = ask_another_thread(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ok(t.end);
    ok(t.alloc);
    ok(cuStreamDestroy_v2(stream));
}

static void a_stream_may_go_while_it_captures(void **state)
{
    (void)state;
    CUstream a = new_stream(0), b = new_stream(0);
    CUevent event = new_event();
    CUgraph graph;
    ok(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    ok(cuEventRecord(event, a));
    ok(cuStreamWaitEvent(b, event, 0));
    ok(cuStreamDestroy_v2(b));
    expect_error(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
    ok(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuStreamDestroy_v2(a));
    ok(cuCtxSynchronize());
    ok(cuEventDestroy_v2(event));
}

static void a_capture_adds_to_a_graph_and_its_dependencies_can_be_set(void **state)
{
    (void)state;
    CUstream stream = new_stream(0);
    CUgraph graph, same;
    CUgraphNode root, tip;
    const CUgraphNode *tips;
    CUstreamCaptureStatus status;
    size_t tip_count, edges;
    ok(cuGraphCreate(&graph, 0));
    ok(cuGraphAddEmptyNode(&root, graph, NULL, 0));
    ok(cuStreamBeginCaptureToGraph(stream, graph, &root, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    ok(cuLaunchHostFunc(stream, count, NULL));
    ok(cuStreamGetCaptureInfo_v3(stream, &status, NULL, &same, &tips, NULL, &tip_count));
    assert_ptr_equal(same, graph);
    assert_int_equal(tip_count, 1);
    assert_ptr_not_equal(tips[0], root);
    ok(cuGraphAddEmptyNode(&tip, graph, NULL, 0));
    ok(cuStreamUpdateCaptureDependencies(stream, &tip, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    ok(cuLaunchHostFunc(stream, count, NULL));
    ok(cuStreamEndCapture(stream, &same));
    assert_ptr_equal(same, graph);
    ok(cuGraphGetEdges(graph, NULL, NULL, &edges));
    assert_int_equal(edges, 2);
    expect_error(CUDA_ERROR_ILLEGAL_STATE,
        cuStreamUpdateCaptureDependencies(stream, &tip, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    ok(cuGraphDestroy(graph));
    ok(cuStreamDestroy_v2(stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_work_runs_when_launched),
        cmocka_unit_test(streams_fork_and_join_by_events),
        cmocka_unit_test(what_a_capture_may_not_meet),
        cmocka_unit_test(modes_say_whom_a_capture_concerns),
        cmocka_unit_test(a_stream_may_go_while_it_captures),
        cmocka_unit_test(a_capture_adds_to_a_graph_and_its_dependencies_can_be_set),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
