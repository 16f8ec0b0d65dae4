#include "sim_test.h"

static CUstream stream;

static int start(void **state)
{
    use_device_0(state);
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return 0;
}

static int stop(void **state)
{
    ok(cuStreamDestroy_v2(stream));
    return leave_device_0(state);
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 99;
    ok(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static CUmemoryPool default_pool(void)
{
    CUmemoryPool pool;
    ok(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static void allocating_and_freeing(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUdeviceptr a;
    ok(cuMemAllocAsync(&a, 10 * MIB, stream));
    ok(cuMemsetD8Async(a, 3, 10 * MIB, stream));
    assert_int_equal(before - free_bytes(), 10 * MIB);
    assert_int_equal(attribute(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 10 * MIB);
    ok(cuMemFreeAsync(a, stream));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(a, stream));
    ok(cuStreamSynchronize(stream)); /* the threshold is 0: nothing is kept over a synchronisation */
    assert_int_equal(free_bytes(), before);
    assert_int_equal(attribute(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(&a, 0, stream));
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&a, 257 * MIB, stream));
    ok(cuMemAllocAsync_ptsz(&a, 100, NULL));
    ok(cuMemFree_v2(a)); /* documented for this memory too */
    ok(cuCtxSynchronize());
    assert_int_equal(free_bytes(), before);
}

/* The same stream may have the bytes again at once; another only when the free has come to pass. */
static void order_of_reuse(void **state)
{
    (void)state;
    struct gate gate = {0};
    CUstream other;
    CUdeviceptr a, same, apart;
    ok(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    ok(cuMemAllocAsync(&a, MIB, stream));
    ok(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    ok(cuMemFreeAsync(a, stream));
    ok(cuMemAllocAsync(&apart, MIB, other));
    assert_int_not_equal(apart, a);
    ok(cuMemAllocAsync(&same, MIB, stream));
    assert_int_equal(same, a);
    ok(cuMemsetD8Async(same, 1, MIB, stream));
    gate.open = true;
    ok(cuStreamSynchronize(stream));
    ok(cuMemsetD8Async(same, 1, MIB, stream)); /* the old free did not take it away */
    ok(cuMemFreeAsync(same, stream));
    ok(cuMemFreeAsync(apart, other));
    ok(cuCtxSynchronize());
    ok(cuStreamDestroy_v2(other));
}

static void memory_of_a_free_under_way_is_waited_for(void **state)
{
    (void)state;
    CUdeviceptr a, b;
    ok(cuMemAllocAsync(&a, 200 * MIB, stream));
    ok(cuMemFreeAsync(a, stream));
    ok(cuMemAllocAsync(&b, 150 * MIB, NULL));
    ok(cuMemFreeAsync(b, NULL));
    ok(cuCtxSynchronize());
}

static void thresholds_and_trimming(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUmemoryPool pool;
    CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    cuuint64_t threshold = UINT64_MAX, zero = 0, one = 1;
    CUdeviceptr a;
    ok(cuMemPoolCreate(&pool, &props));
    ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    ok(cuMemAllocFromPoolAsync(&a, 20 * MIB, pool, stream));
    CUmemoryPool seen;
    ok(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
    assert_ptr_equal(seen, pool);
    ok(cuMemFreeAsync(a, stream));
    ok(cuStreamSynchronize(stream));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 20 * MIB);
    assert_int_equal(before - free_bytes(), 20 * MIB);
    ok(cuMemPoolTrimTo(pool, 5 * MIB));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 5 * MIB);
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 20 * MIB);
    ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 5 * MIB);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
    CUdeviceptr all;
    ok(cuMemAllocAsync(&all, 256 * MIB, stream)); /* what another pool keeps does not stand in the way */
    ok(cuMemFreeAsync(all, stream));
    ok(cuMemAllocFromPoolAsync(&a, MIB, pool, stream));
    ok(cuDeviceSetMemPool(0, pool));
    ok(cuMemPoolDestroy(pool)); /* with memory out: it goes when that does */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&a, MIB, pool, stream));
    ok(cuDeviceGetMemPool(&seen, 0));
    assert_ptr_equal(seen, default_pool());
    ok(cuMemFreeAsync(a, stream));
    ok(cuStreamSynchronize(stream));
    assert_int_equal(free_bytes(), before);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(default_pool()));
}

static void plain_memory_freed_in_stream_order(void **state)
{
    (void)state;
    struct gate gate = {0};
    size_t before = free_bytes();
    CUdeviceptr a;
    ok(cuMemAlloc_v2(&a, MIB));
    ok(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    ok(cuMemFreeAsync(a, stream));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a));
    assert_int_equal(before - free_bytes(), MIB);
    gate.open = true;
    ok(cuStreamSynchronize(stream));
    assert_int_equal(free_bytes(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocating_and_freeing),
        cmocka_unit_test(order_of_reuse),
        cmocka_unit_test(memory_of_a_free_under_way_is_waited_for),
        cmocka_unit_test(thresholds_and_trimming),
        cmocka_unit_test(plain_memory_freed_in_stream_order),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
