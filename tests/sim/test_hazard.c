/* The hazard checker: what it reports, and what it must not. */
#include <time.h>

#include "api/extra_calls.h"
#include "sim_test.h"

static struct gate gate;
static CUstream a, b;
static CUevent event;
static CUdeviceptr memory;

static void expect_hazards(uint64_t before, uint64_t more)
{
    assert_int_equal(segalloc_sim_hazards() - before, more);
    gate.open = true;
    ok(cuCtxSynchronize());
}

static void begin(void)
{
    gate.open = gate.reached = false;
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    segalloc_sim_owner(memory, 4096, 1);
    ok(cuMemsetD8Async(memory, 1, 4096, a));
    segalloc_sim_owner(memory, 4096, 2);
}

static void bytes_for_two_owners_without_order(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    begin();
    ok(cuMemsetD8Async(memory + 4096, 2, 4096, b));
    assert_int_equal(segalloc_sim_hazards(), before);
    ok(cuMemsetD8Async(memory + 1024, 2, 64, b));
    expect_hazards(before, 1);
    segalloc_sim_owner(memory, 4096, 3);
    ok(cuMemsetD8Async(memory, 2, 4096, b)); /* all before it is complete */
    expect_hazards(before, 1);
}

/* Two rows, at both ends of the block: what lies between may be written by another stream. */
static void bytes_between_rows_are_not_touched(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        uint64_t before = segalloc_sim_hazards();
        gate.open = gate.reached = false;
        ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
        segalloc_sim_owner(memory, 4096, 1);
        const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
            .srcDevice = memory + 8192,
            .srcPitch = 128,
            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
            .dstDevice = memory,
            .dstPitch = 3968,
            .WidthInBytes = 128,
            .Height = 2};
        ok(copies ? cuMemcpy2DAsync_v2(&copy, a) : cuMemsetD2D8Async(memory, 3968, 1, 128, 2, a));
        segalloc_sim_owner(memory, 4096, 2);
        ok(cuMemsetD8Async(memory + 128, 2, 3840, b));
        assert_int_equal(segalloc_sim_hazards(), before);
        ok(cuMemsetD8Async(memory + 3967, 2, 2, b));
        expect_hazards(before, 1);
    }
}

static void order_by_stream_and_by_event_is_seen(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    begin();
    ok(cuMemsetD8Async(memory, 2, 4096, a));
    expect_hazards(before, 0);
    begin();
    ok(cuEventRecord(event, a));
    ok(cuStreamWaitEvent(b, event, 0));
    ok(cuMemsetD8Async(memory, 2, 4096, b));
    expect_hazards(before, 0);
    gate.open = false;
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    ok(cuEventRecord(event, a)); /* too early to cover what follows */
    segalloc_sim_owner(memory, 4096, 1);
    ok(cuMemsetD8Async(memory, 1, 4096, a));
    segalloc_sim_owner(memory, 4096, 2);
    ok(cuStreamWaitEvent(b, event, 0));
    ok(cuMemsetD8Async(memory, 2, 4096, b));
    expect_hazards(before, 1);
}

/* A page at two addresses, the second PAGE bytes behind the one that is returned. */
static CUdeviceptr map_twice(CUmemGenericAllocationHandle *ret_page)
{
    CUmemAllocationProp prop = on_device(0);
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr base;
    ok(cuMemAddressReserve(&base, 2 * PAGE, 0, 0, 0));
    ok(cuMemCreate(ret_page, PAGE, &prop, 0));
    ok(cuMemMap(base, PAGE, 0, *ret_page, 0));
    ok(cuMemMap(base + PAGE, PAGE, 0, *ret_page, 0));
    ok(cuMemSetAccess(base, 2 * PAGE, &access, 1));
    return base;
}

static void two_addresses_of_a_page_are_the_same_bytes(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    CUmemGenericAllocationHandle page;
    CUdeviceptr base = map_twice(&page);
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    segalloc_sim_owner(base, PAGE, 1);
    segalloc_sim_owner(base + PAGE, PAGE, 2);
    gate.open = false;
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    ok(cuMemsetD8Async(base, 1, 64, a));
    ok(cuMemsetD8Async(base + PAGE, 1, 64, b));
    ok(cuMemsetD8Async(base + PAGE + 64, 1, 64, b));
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    expect_hazards(before, 1);
    gate.open = false;
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    ok(cuMemsetD8Async(base, 1, 64, a));
    ok(cuMemUnmap(base + PAGE, PAGE));
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    ok(cuMemUnmap(base, PAGE)); /* here the set is still to come */
    ok(cuMemMap(base, PAGE, 0, page, 0));
    ok(cuMemSetAccess(base, PAGE, &access, 1));
    expect_hazards(before, 2);
    ok(cuMemUnmap(base, PAGE));
    expect_hazards(before, 2);
    ok(cuMemRelease(page));
    ok(cuMemAddressFree(base, 2 * PAGE));
}

static void bytes_have_one_owner_at_a_time(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    CUmemGenericAllocationHandle page;
    CUdeviceptr base = map_twice(&page);
    segalloc_sim_owner(base, PAGE / 2, 1);
    segalloc_sim_owner(base + PAGE + PAGE / 2, PAGE / 2, 2);
    gate.open = false;
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    ok(cuMemsetD8Async(base, 1, PAGE / 2, a)); /* they share the page, and none of its bytes */
    ok(cuMemsetD8Async(base + PAGE + PAGE / 2, 1, PAGE / 2, a));
    segalloc_sim_owner(base, PAGE / 2, 0);
    segalloc_sim_owner(base + PAGE, 64, 3); /* one comes after the other */
    ok(cuMemsetD8Async(base + PAGE, 1, 64, a));
    assert_int_equal(segalloc_sim_hazards() - before, 0);
    segalloc_sim_owner(base + PAGE / 2, 64, 4); /* and here 2 has them too, in whatever order their work is */
    ok(cuMemsetD8Async(base + PAGE / 2, 1, 64, a));
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    expect_hazards(before, 1);
    ok(cuMemUnmap(base, 2 * PAGE));
    expect_hazards(before, 1);
    ok(cuMemRelease(page));
    ok(cuMemAddressFree(base, 2 * PAGE));
}

/* For owner 1 on `first` and then for owner 2 on `second`: how many hazards that is. */
static uint64_t two_owners(CUstream first, CUstream second, CUresult (*between)(CUstream, CUstream))
{
    uint64_t before = segalloc_sim_hazards();
    ok(cuCtxSynchronize());
    segalloc_sim_owner(memory, 4096, 1);
    ok(cuMemsetD8Async(memory, 1, 4096, first));
    if (between)
        ok(between(first, second));
    segalloc_sim_owner(memory, 4096, 2);
    ok(cuMemsetD8Async(memory, 2, 4096, second));
    return segalloc_sim_hazards() - before;
}

static CUresult sleep_a_while(CUstream first, CUstream second)
{
    (void)first, (void)second;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return CUDA_SUCCESS;
}

static CUresult ask_until_done(CUstream first, CUstream second)
{
    CUresult result;
    (void)second;
    while ((result = cuStreamQuery(first)) == CUDA_ERROR_NOT_READY) {
    }
    return result;
}

static CUresult ask_event(CUstream first, CUstream second)
{
    CUresult result;
    (void)second;
    ok(cuEventRecord(event, first));
    while ((result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) {
    }
    return result;
}

static CUresult synchronize_event(CUstream first, CUstream second)
{
    (void)second;
    ok(cuEventRecord(event, first));
    return cuEventSynchronize(event);
}

static CUresult whole_context(CUstream first, CUstream second)
{
    CUcontext context;
    (void)first, (void)second;
    ok(cuCtxGetCurrent(&context));
    ok(cuCtxRecordEvent(context, event));
    return cuCtxWaitEvent(context, event);
}

static CUresult context_event_for_stream(CUstream first, CUstream second)
{
    CUcontext context;
    (void)first;
    ok(cuCtxGetCurrent(&context));
    ok(cuCtxRecordEvent(context, event));
    return cuStreamWaitEvent(second, event, 0);
}

static CUresult recorded_anew_elsewhere(CUstream first, CUstream second)
{
    ok(cuEventRecord(event, first));
    ok(cuEventRecord(event, second));
    return cuStreamWaitEvent(second, event, 0);
}

static CUresult through_the_legacy_stream(CUstream first, CUstream second)
{
    ok(cuEventRecord(event, first));
    ok(cuStreamWaitEvent(NULL, event, 0));
    ok(cuMemsetD8Async(memory + 8192, 0, 16, NULL));
    ok(cuEventRecord(event, NULL));
    return cuStreamWaitEvent(second, event, 0);
}

static void only_what_the_program_knows_is_order(void **state)
{
    (void)state;
    CUstream blocking, other;
    ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    ok(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    assert_int_equal(two_owners(a, b, sleep_a_while), 1);
    assert_int_equal(two_owners(a, b, ask_until_done), 0);
    assert_int_equal(two_owners(a, b, ask_event), 0);
    assert_int_equal(two_owners(a, b, synchronize_event), 0);
    assert_int_equal(two_owners(a, b, whole_context), 0);
    assert_int_equal(two_owners(a, b, context_event_for_stream), 0);
    assert_int_equal(two_owners(a, b, recorded_anew_elsewhere), 1);
    assert_int_equal(two_owners(a, b, through_the_legacy_stream), 0);
    assert_int_equal(two_owners(blocking, NULL, NULL), 0);
    assert_int_equal(two_owners(NULL, blocking, NULL), 0);
    assert_int_equal(two_owners(blocking, other, NULL), 1);
    assert_int_equal(two_owners(a, NULL, NULL), 1);
    assert_int_equal(two_owners(NULL, CU_STREAM_PER_THREAD, NULL), 0);
    assert_int_equal(two_owners(a, CU_STREAM_PER_THREAD, NULL), 1);
    ok(cuCtxSynchronize());
    ok(cuStreamDestroy_v2(blocking));
    ok(cuStreamDestroy_v2(other));
}

static void a_destroyed_stream_is_not_the_next_one(void **state)
{
    (void)state;
    CUstream first, second;
    uint64_t before = segalloc_sim_hazards();
    ok(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    segalloc_sim_owner(memory, 4096, 1);
    ok(cuMemsetD8Async(memory, 1, 4096, first));
    ok(cuStreamDestroy_v2(first));
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    ok(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    segalloc_sim_owner(memory, 4096, 2);
    ok(cuMemsetD8Async(memory, 2, 4096, second));
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    ok(cuCtxSynchronize()); /* covers it all the same */
    segalloc_sim_owner(memory, 4096, 3);
    ok(cuMemsetD8Async(memory, 3, 4096, b));
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    ok(cuStreamDestroy_v2(second));
}

static void bytes_given_back_are_nobodys(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    ok(cuCtxSynchronize());
    segalloc_sim_owner(memory, 8192, 1);
    segalloc_sim_owner(memory + 4096, 4096, 0);
    ok(cuMemsetD8Async(memory, 1, 4096, a));
    assert_int_equal(segalloc_sim_hazards() - before, 0);
    ok(cuMemsetD8Async(memory + 4000, 1, 200, a));
    assert_int_equal(segalloc_sim_hazards() - before, 1);
}

static int sums;

static void add_up(void **arguments)
{
    const int *x = *(const int **)arguments[0];
    int *y = *(int **)arguments[1], n = *(int *)arguments[2];
    for (int i = 0; i < n; i++)
        *y += x[i];
    sums++;
}

static CUfunction function(const char *name)
{
    CUmodule module;
    CUfunction f;
    ok(cuModuleLoadData(&module, "code"));
    ok(cuModuleGetFunction(&f, module, name));
    return f;
}

static void kernels_do_and_touch_what_was_declared(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    assert_int_equal(segalloc_sim_kernel("add_up", "r x[4*n], rw y[4], i32 n", add_up), 0);
    assert_int_equal(segalloc_sim_kernel("bad", "r x[4*m], i32 n", NULL), -1);
    assert_int_equal(segalloc_sim_kernel("bad", "r x, i32 n", NULL), -1);
    assert_int_equal(segalloc_sim_kernel("bad", "x[4]", NULL), -1);
    CUfunction f = function("add_up");
    ok(cuCtxSynchronize());
    int n = 3, total;
    CUdeviceptr x = memory, y = memory + 4096;
    void *params[] = {&x, &y, &n};
    struct {
        CUdeviceptr x, y;
        int n;
    } packed = {x, y, n};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    segalloc_sim_owner(memory, 8192, 1);
    ok(cuMemsetD32Async(x, 7, 4, a));
    ok(cuMemsetD32Async(y, 0, 1, a));
    ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, a, params, NULL));
    ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, a, NULL, extra));
    segalloc_sim_owner(memory, 4096, 2);
    segalloc_sim_owner(memory + 4096, 4096, 2);
    ok(cuMemsetD8Async(memory + 12, 0, 4, b)); /* behind what the kernel reads, but under the set */
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    ok(cuMemsetD8Async(memory + 4100, 0, 4, b)); /* behind what it writes */
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    ok(cuMemsetD8Async(memory + 4096, 0, 4, b));
    assert_int_equal(segalloc_sim_hazards() - before, 2);
    ok(cuCtxSynchronize());
    segalloc_sim_owner(memory, 8192, 3);
    ok(cuMemsetD32Async(x, 7, 4, a));
    ok(cuMemsetD32Async(y, 1, 1, a));
    ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, a, params, NULL));
    ok(cuMemcpyDtoHAsync_v2(&total, y, sizeof total, a));
    ok(cuStreamSynchronize(a));
    assert_int_equal(total, 22);
    assert_int_equal(sums, 3);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, a, NULL, NULL));
}

static void nothing(void *data)
{
    (void)data;
}

static void host_functions_touch_what_was_announced(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    ok(cuCtxSynchronize());
    gate.open = false;
    segalloc_sim_owner(memory, 4096, 1);
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    segalloc_sim_touches(memory, 64, 0);
    ok(cuLaunchHostFunc(a, nothing, NULL));
    ok(cuLaunchHostFunc(a, nothing, NULL));
    segalloc_sim_owner(memory, 4096, 2);
    ok(cuMemsetD8Async(memory + 64, 0, 64, b));
    assert_int_equal(segalloc_sim_hazards() - before, 0);
    ok(cuMemsetD8Async(memory, 0, 64, b));
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    expect_hazards(before, 1);
}

static void a_graph_touches_what_it_captured(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    CUgraph graph;
    CUgraphExec exec;
    segalloc_sim_owner(memory, 4096, 1);
    ok(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    ok(cuMemsetD8Async(memory, 1, 4096, a));
    ok(cuStreamEndCapture(a, &graph));
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cuCtxSynchronize());
    ok(cuGraphLaunch(exec, a));
    ok(cuMemsetD8Async(memory, 1, 4096, b)); /* the same owner: the program's own business */
    assert_int_equal(segalloc_sim_hazards() - before, 0);
    segalloc_sim_owner(memory, 4096, 2);
    ok(cuCtxSynchronize());
    ok(cuMemsetD8Async(memory, 1, 4096, b));
    assert_int_equal(segalloc_sim_hazards() - before, 0);
    ok(cuGraphLaunch(exec, a)); /* still for owner 1 */
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    ok(cuCtxSynchronize());
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphDestroy(graph));
}

static int set_up(void **state)
{
    use_device_0(state);
    ok(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ok(cuMemAlloc_v2(&memory, MIB));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_for_two_owners_without_order),
        cmocka_unit_test(bytes_between_rows_are_not_touched),
        cmocka_unit_test(order_by_stream_and_by_event_is_seen),
        cmocka_unit_test(two_addresses_of_a_page_are_the_same_bytes),
        cmocka_unit_test(bytes_have_one_owner_at_a_time),
        cmocka_unit_test(only_what_the_program_knows_is_order),
        cmocka_unit_test(a_destroyed_stream_is_not_the_next_one),
        cmocka_unit_test(bytes_given_back_are_nobodys),
        cmocka_unit_test(kernels_do_and_touch_what_was_declared),
        cmocka_unit_test(host_functions_touch_what_was_announced),
        cmocka_unit_test(a_graph_touches_what_it_captured),
    };
    return cmocka_run_group_tests(tests, set_up, leave_device_0);
}
