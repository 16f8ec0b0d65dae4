/* Graphs: nodes, executables, memory of graphs, user objects. */
#include <stdatomic.h>

#include "api/extra_calls.h"
#include "sim_test.h"

static atomic_uint next_number, destroyed;

static void note(void *at)
{
    *(unsigned *)at = atomic_fetch_add(&next_number, 1) + 1;
}

static void destroy(void *by)
{
    atomic_fetch_add(&destroyed, (unsigned)(uintptr_t)by);
}

static void expect_destroyed(unsigned count)
{
    for (unsigned i = 0; i < 500 && atomic_load(&destroyed) != count; i++)
        sleep_ms(2);
    assert_int_equal(atomic_load(&destroyed), count);
}

static CUgraphNode add_note(CUgraph graph, const CUgraphNode *deps, size_t count, unsigned *at)
{
    CUgraphNode node;
    ok(cuGraphAddHostNode(&node, graph, deps, count, &(CUDA_HOST_NODE_PARAMS){note, at}));
    return node;
}

static void run(CUgraph graph)
{
    CUgraphExec exec;
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cuGraphLaunch(exec, NULL));
    ok(cuGraphExecDestroy(exec)); /* what is under way goes on */
    ok(cuStreamSynchronize(NULL));
}

static void nodes_run_in_the_order_of_their_edges(void **state)
{
    (void)state;
    unsigned order[4] = {0};
    CUgraph graph, clone;
    ok(cuGraphCreate(&graph, 0));
    CUgraphNode d = add_note(graph, NULL, 0, &order[3]);
    CUgraphNode b = add_note(graph, NULL, 0, &order[1]), c = add_note(graph, NULL, 0, &order[2]);
    CUgraphNode a = add_note(graph, NULL, 0, &order[0]);
    const CUgraphNode from[] = {a, a, b, c}, to[] = {b, c, d, d};
    ok(cuGraphAddDependencies(graph, from, to, 4));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, from, to, 1));
    atomic_store(&next_number, 0);
    run(graph);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[3], 4);
    size_t count = 4;
    CUgraphNode nodes[4], found;
    ok(cuGraphGetRootNodes(graph, nodes, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(nodes[0], a);
    count = 4;
    ok(cuGraphNodeGetDependencies(d, nodes, &count));
    assert_int_equal(count, 2);
    assert_null(nodes[2]);
    count = 4;
    ok(cuGraphNodeGetDependentNodes(a, nodes, &count));
    assert_int_equal(count, 2);
    ok(cuGraphClone(&clone, graph));
    ok(cuGraphNodeFindInClone(&found, b, clone));
    ok(cuGraphDestroyNode(found));
    ok(cuGraphGetEdges(clone, NULL, NULL, &count));
    assert_int_equal(count, 2);
    ok(cuGraphDestroy(graph));
    atomic_store(&next_number, 0);
    run(clone);
    assert_int_equal(atomic_load(&next_number), 3);
    ok(cuGraphNodeFindInClone(&found, d, clone));
    CUgraphNode root = NULL;
    count = 1;
    ok(cuGraphGetRootNodes(clone, &root, &count));
    ok(cuGraphAddDependencies(clone, &found, &root, 1));
    CUgraphExec exec;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, clone, 0)); /* a cycle */
    ok(cuGraphDestroy(clone));
}

static void nodes_of_every_kind_do_their_work(void **state)
{
    (void)state;
    CUgraph graph, child;
    CUgraphNode set, copy, kernel, inner, node;
    CUdeviceptr memory;
    CUmodule module;
    CUfunction function;
    unsigned there = 0, order = 0;
    ok(cuModuleLoadData(&module, "any"));
    ok(cuModuleGetFunction(&function, module, "step"));
    ok(cuMemAlloc_v2(&memory, 64));
    ok(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory, .value = 5, .elementSize = 4, .width = 1, .height = 1}, filled;
    ok(cuGraphAddMemsetNode(&set, graph, NULL, 0, &fill, NULL));
    ok(cuGraphMemsetNodeGetParams(set, &filled));
    assert_int_equal(filled.value, 5);
    CUDA_KERNEL_NODE_PARAMS launch = {.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32,
        .blockDimY = 1, .blockDimZ = 1}, launched;
    ok(cuGraphAddKernelNode_v2(&kernel, graph, &set, 1, &launch));
    ok(cuGraphKernelNodeGetParams_v2(kernel, &launched));
    assert_ptr_equal(launched.func, function);
    assert_int_equal(launched.blockDimX, 32);
    launch.blockDimX = 0;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetParams_v2(kernel, &launch));
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = &there, .WidthInBytes = 4, .Height = 1, .Depth = 1};
    ok(cuGraphAddMemcpyNode(&copy, graph, &kernel, 1, &box, NULL));
    ok(cuGraphCreate(&child, 0));
    inner = add_note(child, NULL, 0, &order);
    ok(cuGraphAddChildGraphNode(&node, graph, &copy, 1, child));
    ok(cuGraphDestroy(child));
    CUgraphNodeType type;
    ok(cuGraphNodeGetType(node, &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_GRAPH);
    ok(cuGraphChildGraphNodeGetGraph(node, &child));
    ok(cuGraphNodeFindInClone(&node, inner, child));
    atomic_store(&next_number, 0);
    run(graph);
    assert_int_equal(there, 5);
    assert_int_equal(order, 1);

    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    fill.value = 6;
    ok(cuGraphExecMemsetNodeSetParams(exec, set, &fill, NULL));
    ok(cuGraphLaunch(exec, NULL));
    ok(cuStreamSynchronize(NULL));
    assert_int_equal(there, 6);
    fill.value = 7;
    ok(cuGraphMemsetNodeSetParams(set, &fill));
    ok(cuGraphExecUpdate_v2(exec, graph, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    ok(cuGraphLaunch(exec, NULL));
    ok(cuStreamSynchronize(NULL));
    assert_int_equal(there, 7);
    ok(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    expect_error(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, graph, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphDestroy(graph));
    ok(cuMemFree_v2(memory));
    ok(cuModuleUnload(module));
}

static void words_are_written_and_waited_for(void **state)
{
    (void)state;
    CUdeviceptr a;
    CUgraph graph;
    CUgraphNode first, second;
    CUgraphExec exec;
    CUstream stream;
    ok(cuMemAlloc_v2(&a, 64));
    uint64_t *word = host(a);
    memset(word, 0, 64);
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUstreamBatchMemOpParams ops[2] = {
        {.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, a, {.value64 = 1}, CU_STREAM_WAIT_VALUE_GEQ, 0}},
        {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, a + 8, {.value64 = 5}, 0, 0}},
    };
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {.count = 2, .paramArray = ops}, seen;
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .memOp = params};
    ok(cuGraphCreate(&graph, 0));
    ok(cuGraphAddBatchMemOpNode(&first, graph, NULL, 0, &params));
    ops[1].writeValue.address = a + 16;
    ok(cuGraphAddNode(&second, graph, &first, 1, &any));
    ok(cuGraphBatchMemOpNodeGetParams(second, &seen));
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.paramArray[1].writeValue.address, a + 16);
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cuGraphLaunch(exec, stream));
    sleep_ms(2);
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    ok(cuStreamSynchronize(stream));
    assert_true(word[1] == 5 && word[2] == 5);
    ops[1].writeValue.value64 = 6;
    ok(cuGraphExecBatchMemOpNodeSetParams(exec, second, &params));
    ok(cuGraphLaunch(exec, stream));
    ok(cuStreamSynchronize(stream));
    assert_true(word[1] == 5 && word[2] == 6);
    params.count = 1;
    ok(cuGraphBatchMemOpNodeSetParams(first, &params));
    params.flags = 1;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphBatchMemOpNodeSetParams(first, &params));
    ok(cuGraphDestroy(graph));
    ok(cuGraphExecDestroy(exec));
    ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED)); /* captured, they are one node */
    ok(cuStreamBatchMemOp_v2(stream, 2, ops, 0));
    ok(cuStreamEndCapture(stream, &graph));
    size_t count = 1;
    ok(cuGraphGetNodes(graph, &first, &count));
    ok(cuGraphBatchMemOpNodeGetParams(first, &seen));
    assert_true(count == 1 && seen.count == 2);
    ok(cuGraphDestroy(graph));
    ok(cuStreamDestroy_v2(stream));
    ok(cuMemFree_v2(a));
}

static void events_reach_in_and_out(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode wait, record;
    CUevent before, after;
    CUstream a, b;
    struct gate gate = {false, false};
    unsigned order = 0;
    ok(cuEventCreate(&before, 0));
    ok(cuEventCreate(&after, 0));
    ok(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    ok(cuGraphCreate(&graph, 0));
    ok(cuGraphAddEventWaitNode(&wait, graph, NULL, 0, before));
    CUgraphNode middle = add_note(graph, &wait, 1, &order);
    ok(cuGraphAddEventRecordNode(&record, graph, &middle, 1, after));
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    ok(cuEventRecord(before, a));
    ok(cuGraphLaunch(exec, b));
    expect_error(CUDA_ERROR_NOT_READY, cuEventQuery(after));
    assert_int_equal(order, 0);
    gate.open = true;
    ok(cuEventSynchronize(after));
    assert_int_not_equal(order, 0);
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphDestroy(graph));
    ok(cuEventDestroy_v2(before));
    ok(cuEventDestroy_v2(after));
    ok(cuStreamDestroy_v2(a));
    ok(cuStreamDestroy_v2(b));
}

static void memory_of_graphs_is_taken_by_a_launch(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph, clone;
    CUgraphExec exec;
    CUdeviceptr inside, left;
    size_t before = free_bytes();
    cuuint64_t used;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuMemAllocAsync(&inside, 4 * MIB, stream));
    ok(cuMemsetD8Async(inside, 1, 4 * MIB, stream));
    ok(cuMemAllocAsync(&left, MIB, stream));
    ok(cuMemFreeAsync(inside, stream));
    ok(cuStreamEndCapture(stream, &graph));
    assert_int_equal(free_bytes(), before);
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph));
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (unsigned i = 0; i < 2; i++) {
        ok(cuGraphLaunch(exec, stream));
        ok(cuStreamSynchronize(stream));
        assert_int_equal(free_bytes(), before - MIB);
        ok(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
        assert_int_equal(used, MIB);
        expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream)); /* what it left is not freed */
        assert_int_equal(free_bytes(), before - MIB);
        if (i == 0)
            ok(cuMemFreeAsync(left, stream));
        else
            ok(cuMemFree_v2(left));
        ok(cuStreamSynchronize(stream));
        assert_int_equal(free_bytes(), before);
    }
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    for (unsigned i = 0; i < 3; i++)
        ok(cuGraphLaunch(exec, stream));
    ok(cuStreamSynchronize(stream));
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphDestroy(graph));
    assert_int_equal(free_bytes(), before - MIB);
    ok(cuMemFree_v2(left)); /* it outlives the graph that left it */
    assert_int_equal(free_bytes(), before);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(left));
    ok(cuStreamDestroy_v2(stream));
}

/* No node of it has run, nothing is held for it, and the next launch is whole. */
static void a_launch_that_runs_out_has_done_nothing(void **state)
{
    (void)state;
    enum { KEPT = 64 << 10 };
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr kept, inside[3], rest;
    unsigned char bytes[KEPT];
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuMemAlloc_v2(&kept, KEPT));
    ok(cuMemsetD8_v2(kept, 3, KEPT));
    ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuMemsetD8Async(kept, 4, KEPT, stream));
    for (int i = 0; i < 3; i++) {
        ok(cuMemAllocAsync(&inside[i], (size_t)(2 << i) * MIB, stream)); /* 14 MiB */
        ok(cuMemsetD8Async(inside[i], 5, MIB, stream));
    }
    for (int i = 0; i < 3; i++)
        ok(cuMemFreeAsync(inside[i], stream));
    ok(cuStreamEndCapture(stream, &graph));
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cuMemAlloc_v2(&rest, (free_bytes() - 8 * MIB) / (2 * MIB) * (2 * MIB)));
    size_t before = free_bytes();
    for (int i = 0; i < 3; i++) {
        expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, stream));
        ok(cuStreamSynchronize(stream));
        assert_int_equal(free_bytes(), before);
        ok(cuMemcpyDtoH_v2(bytes, kept, KEPT));
        for (size_t j = 0; j < KEPT; j++)
            assert_int_equal(bytes[j], 3);
    }
    ok(cuMemFree_v2(rest));
    ok(cuGraphLaunch(exec, stream));
    ok(cuMemcpyDtoHAsync_v2(bytes, kept, KEPT, stream));
    ok(cuStreamSynchronize(stream));
    for (size_t j = 0; j < KEPT; j++)
        assert_int_equal(bytes[j], 4);
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphDestroy(graph));
    ok(cuMemFree_v2(kept));
    ok(cuStreamDestroy_v2(stream));
}

static void user_objects_live_as_long_as_anything_that_holds_them(void **state)
{
    (void)state;
    CUuserObject object;
    CUgraph graph, clone, parent;
    CUgraphExec exec;
    CUgraphNode node;
    struct gate gate = {false, false};
    atomic_store(&destroyed, 0);
    ok(cuUserObjectCreate(&object, (void *)1, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    ok(cuUserObjectRetain(object, 2));
    ok(cuUserObjectRelease(object, 3));
    expect_destroyed(1);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(object, 1));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&object, NULL, destroy, 1, 0));

    ok(cuGraphCreate(&graph, 0));
    ok(cuGraphAddHostNode(&node, graph, NULL, 0, &(CUDA_HOST_NODE_PARAMS){wait_at_gate, &gate}));
    ok(cuUserObjectCreate(&object, (void *)10, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    ok(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    ok(cuGraphClone(&clone, graph));
    ok(cuGraphDestroy(graph));
    ok(cuGraphCreate(&parent, 0));
    ok(cuGraphAddChildGraphNode(&node, parent, NULL, 0, clone));
    ok(cuGraphDestroy(clone));
    ok(cuGraphInstantiateWithFlags(&exec, parent, 0));
    ok(cuGraphDestroy(parent));
    ok(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
    ok(cuGraphExecDestroy(exec));
    sleep_ms(20);
    assert_int_equal(atomic_load(&destroyed), 1);
    gate.open = true;
    expect_destroyed(11);

    ok(cuGraphCreate(&graph, 0));
    ok(cuUserObjectCreate(&object, (void *)100, destroy, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    ok(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    ok(cuGraphReleaseUserObject(graph, object, 1));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphReleaseUserObject(graph, object, 1));
    ok(cuUserObjectRelease(object, 1));
    expect_destroyed(111);
    ok(cuGraphDestroy(graph));
}

static CUgraph graph_that_sets(CUdeviceptr memory, unsigned value, CUgraphNode *ret_node)
{
    CUgraph graph;
    CUcontext context;
    const CUDA_MEMSET_NODE_PARAMS params = {.dst = memory, .value = value, .elementSize = 1, .width = 64, .height = 1};
    ok(cuCtxGetCurrent(&context));
    ok(cuGraphCreate(&graph, 0));
    ok(cuGraphAddMemsetNode(ret_node, graph, NULL, 0, &params, context));
    return graph;
}

/* An executable is given other events and another child; the graph that it was made of stays as it was. */
static void an_executable_is_given_other_parts(void **state)
{
    (void)state;
    CUdeviceptr memory;
    CUgraphNode set, part, record, empty;
    CUgraph child, other, graph, larger;
    CUgraphExec exec;
    CUevent first, second, found;
    unsigned char byte;
    ok(cuMemAlloc_v2(&memory, 64));
    ok(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
    ok(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
    child = graph_that_sets(memory, 1, &set);
    other = graph_that_sets(memory, 2, &set);
    larger = graph_that_sets(memory, 3, &set);
    ok(cuGraphAddEmptyNode(&empty, larger, NULL, 0));
    ok(cuGraphCreate(&graph, 0));
    ok(cuGraphAddChildGraphNode(&part, graph, NULL, 0, child));
    ok(cuGraphAddEventRecordNode(&record, graph, &part, 1, first));
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphExecChildGraphNodeSetParams(exec, part, larger));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphExecChildGraphNodeSetParams(exec, record, other));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphExecEventWaitNodeSetEvent(exec, record, second));
    ok(cuGraphExecChildGraphNodeSetParams(exec, part, other));
    ok(cuGraphExecEventRecordNodeSetEvent(exec, record, second));
    ok(cuGraphLaunch(exec, NULL));
    ok(cuEventSynchronize(second));
    ok(cuMemcpyDtoH_v2(&byte, memory + 63, 1));
    assert_int_equal(byte, 2);
    ok(cuGraphEventRecordNodeGetEvent(record, &found));
    assert_ptr_equal(found, first);
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphDestroy(graph));
    ok(cuGraphDestroy(child));
    ok(cuGraphDestroy(other));
    ok(cuGraphDestroy(larger));
    ok(cuEventDestroy_v2(first));
    ok(cuEventDestroy_v2(second));
    ok(cuMemFree_v2(memory));
}

/* What cudaGraphSetConditional() is for: the body says when it has been run often enough. */
static void count_down(void **arguments)
{
    unsigned *left = (unsigned *)(uintptr_t)*(CUdeviceptr *)arguments[1];
    segalloc_sim_condition(*(uint64_t *)arguments[0], --*left);
}

static void a_body_is_run_until_its_condition_is_zero(void **state)
{
    (void)state;
    CUdeviceptr memory;
    CUmodule module;
    CUfunction function;
    CUgraph graph, clone;
    CUgraphNode node, kernel, set;
    CUgraphExec exec;
    unsigned words[2];
    CUgraphNodeParams loop = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    assert_int_equal(segalloc_sim_kernel("count_down", "u64 handle, rw left[4]", count_down), 0);
    ok(cuModuleLoadData(&module, "any"));
    ok(cuModuleGetFunction(&function, module, "count_down"));
    ok(cuMemAlloc_v2(&memory, 64));
    ok(cuGraphCreate(&graph, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(&loop.conditional.handle, graph, NULL, 1, 2));
    ok(cuGraphConditionalHandleCreate(&loop.conditional.handle, graph, NULL, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    loop.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
    loop.conditional.size = 2;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &loop));
    loop.conditional.size = 1;
    ok(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &loop));
    CUgraph body = loop.conditional.phGraph_out[0];
    void *arguments[] = {&loop.conditional.handle, &memory};
    CUDA_KERNEL_NODE_PARAMS launch = {.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
        .blockDimY = 1, .blockDimZ = 1, .kernelParams = arguments};
    CUDA_MEMSET_NODE_PARAMS mark = {.dst = memory + 4, .value = 9, .elementSize = 4, .width = 1, .height = 1};
    ok(cuGraphAddKernelNode_v2(&kernel, body, NULL, 0, &launch));
    ok(cuGraphAddMemsetNode(&set, body, &kernel, 1, &mark, NULL));
    ok(cuGraphClone(&clone, graph));
    ok(cuGraphDestroy(clone));
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (unsigned left = 5; left > 3; left--) {
        words[0] = left;
        words[1] = 0;
        ok(cuMemcpyHtoD_v2(memory, words, sizeof words));
        ok(cuGraphLaunch(exec, NULL));
        ok(cuMemcpyDtoH_v2(words, memory, sizeof words));
        assert_int_equal(words[0], 0);
        assert_int_equal(words[1], 9);
    }
    ok(cuGraphExecDestroy(exec));
    unsigned order = 0;
    add_note(body, NULL, 0, &order); /* a function of the host, which may not stand there */
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cuGraphDestroy(graph));
    ok(cuModuleUnload(module));
    ok(cuMemFree_v2(memory));
}

static void memory_beyond_all_addresses(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}}};
    ok(cuGraphCreate(&graph, 0));
    for (size_t less = 0; less < 1024; less += 511) {
        params.bytesize = SIZE_MAX - less;
        expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    }
    ok(cuGraphDestroy(graph));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_run_in_the_order_of_their_edges),
        cmocka_unit_test(nodes_of_every_kind_do_their_work),
        cmocka_unit_test(words_are_written_and_waited_for),
        cmocka_unit_test(events_reach_in_and_out),
        cmocka_unit_test(memory_of_graphs_is_taken_by_a_launch),
        cmocka_unit_test(a_launch_that_runs_out_has_done_nothing),
        cmocka_unit_test(memory_beyond_all_addresses),
        cmocka_unit_test(user_objects_live_as_long_as_anything_that_holds_them),
        cmocka_unit_test(an_executable_is_given_other_parts),
        cmocka_unit_test(a_body_is_run_until_its_condition_is_zero),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
