/* Managed memory is never refused: it comes to a device when that touches it or it is fetched there, is part of what is
   in use then, and goes to the host's memory when the device needs room. */
#include <dlfcn.h>

#include "api/extra_calls.h"
#include "sim_test.h"

static struct segalloc_sim_managed of(int device)
{
    struct segalloc_sim_managed state = {0};
    segalloc_sim_managed_fn ask;
    *(void **)&ask = dlsym(RTLD_DEFAULT, "segalloc_sim_managed");
    assert_non_null(ask);
    assert_int_equal(ask(device, &state), 0);
    assert_int_equal(ask(2, &state), -1);
    return state;
}

static CUdeviceptr make(size_t bytes)
{
    CUdeviceptr address;
    ok(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
    return address;
}

static void touch(CUdeviceptr address, size_t bytes)
{
    ok(cuMemsetD8Async(address, 1, bytes, NULL));
    ok(cuCtxSynchronize());
}

static void comes_when_it_is_touched(void **state)
{
    (void)state;
    CUdeviceptr a = make(100 * MIB);
    assert_int_equal(free_bytes(), 256 * MIB);
    touch(a + 3 * MIB, 2 * MIB); /* parts of two pages */
    assert_int_equal(free_bytes(), 252 * MIB);
    assert_int_equal(of(0).resident_bytes, 4 * MIB);
    ok(cuMemcpyDtoD_v2(a + 90 * MIB, a, 10 * MIB));
    ok(cuCtxSynchronize());
    assert_int_equal(of(0).resident_bytes, (10 + 10) * MIB);
    ok(cuMemFree_v2(a));
    assert_int_equal(free_bytes(), 256 * MIB);
    CUdeviceptr small = make(5000);
    touch(small, 5000);
    assert_int_equal(free_bytes(), 256 * MIB - 64 * 1024);
    ok(cuMemFree_v2(small));
    assert_true(of(0).resident_bytes == 0 && of(0).evicted_pages == 0 && of(0).kept_out_pages == 0);
}

static void comes_by_a_graph(void **state)
{
    (void)state;
    CUdeviceptr a = make(10 * MIB);
    CUgraph graph;
    CUgraphExec exec;
    CUstream stream;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuMemsetD8Async(a, 1, 10 * MIB, stream));
    ok(cuStreamEndCapture(stream, &graph));
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    assert_int_equal(free_bytes(), 256 * MIB);
    ok(cuGraphLaunch(exec, stream));
    ok(cuStreamSynchronize(stream));
    assert_int_equal(free_bytes(), 246 * MIB);
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphDestroy(graph));
    ok(cuStreamDestroy_v2(stream));
    ok(cuMemFree_v2(a));
}

static void is_fetched(void **state)
{
    (void)state;
    CUdeviceptr a = make(20 * MIB);
    ok(cuMemPrefetchAsync(a, 20 * MIB, 0, NULL));
    assert_true(of(0).resident_bytes == 20 * MIB && of(1).resident_bytes == 0);
    ok(cuMemPrefetchAsync_v2(a, 10 * MIB, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 1}, 0, NULL));
    assert_true(of(0).resident_bytes == 10 * MIB && of(1).resident_bytes == 10 * MIB);
    ok(cuMemPrefetchAsync(a, 20 * MIB, CU_DEVICE_CPU, NULL));
    assert_true(of(0).resident_bytes == 0 && of(1).resident_bytes == 0);
    ok(cuMemPrefetchAsync(a, 20 * MIB, 1, NULL));
    ok(cuMemPrefetchAsync_v2(a, 20 * MIB, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}, 0, NULL));
    assert_int_equal(of(1).resident_bytes, 0);
    expect_error(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(a, MIB, 2, NULL));
    expect_error(CUDA_ERROR_INVALID_DEVICE,
        cuMemPrefetchAsync_v2(a, MIB, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 2}, 0, NULL));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync_v2(a, MIB, (CUmemLocation){0}, 0, NULL));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(a, 21 * MIB, 0, NULL));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(a, 0, 0, NULL));
    ok(cuMemFree_v2(a));
    assert_true(of(0).evicted_pages == 0 && of(1).evicted_pages == 0); /* nobody needed the room */
}

/* What was not used for longest goes first; what cannot go makes no room, and then what comes is kept out. */
static void goes_for_others(void **state)
{
    (void)state;
    CUdeviceptr old = make(100 * MIB), young = make(100 * MIB), plain, all;
    touch(young, 100 * MIB);
    touch(old, 100 * MIB);
    touch(young, MIB);
    ok(cuMemAlloc_v2(&plain, 60 * MIB));
    assert_int_equal(of(0).evicted_pages, 2);
    touch(young, 100 * MIB); /* nothing of it has gone */
    assert_int_equal(of(0).evicted_pages, 2);
    touch(old, 100 * MIB); /* the two pages, for two of the other one's */
    assert_true(of(0).evicted_pages == 4 && of(0).resident_bytes == 196 * MIB && free_bytes() == 0);
    ok(cuMemAlloc_v2(&all, 196 * MIB)); /* all of it goes */
    assert_true(of(0).evicted_pages == 4 + 98 && of(0).resident_bytes == 0);
    touch(old, 10 * MIB);
    assert_true(of(0).kept_out_pages == 5 && of(0).evicted_pages == 102);
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&plain, 512));
    ok(cuMemFree_v2(all));
    ok(cuMemFree_v2(plain));
    ok(cuMemFree_v2(old));
    ok(cuMemFree_v2(young));
}

/* More than the device has is worked on all the same. */
static void is_more_than_there_is(void **state)
{
    (void)state;
    uint64_t before = of(0).evicted_pages;
    CUdeviceptr a = make(512 * MIB);
    size_t room = free_bytes();
    touch(a, 512 * MIB);
    assert_int_equal(of(0).resident_bytes, room);
    assert_int_equal(of(0).evicted_pages - before, (512 * MIB - room) / PAGE);
    ok(cuMemFree_v2(a));
    assert_int_equal(free_bytes(), room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_when_it_is_touched),
        cmocka_unit_test(comes_by_a_graph),
        cmocka_unit_test(is_fetched),
        cmocka_unit_test(goes_for_others),
        cmocka_unit_test(is_more_than_there_is),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
