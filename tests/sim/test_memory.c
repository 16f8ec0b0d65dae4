#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "sim_test.h"

static void free_memory_goes_down_and_up_by_blocks(void **state)
{
    (void)state;
    size_t before = free_bytes(), total;
    CUdeviceptr a, b;
    ok(cuMemGetInfo_v2(NULL, &total)); /* NULL is legal for either */
    assert_int_equal(total, 256 * MIB);
    assert_int_equal(before, total);
    ok(cuMemAlloc_v2(&a, 1));
    assert_int_equal(a % 512, 0);
    assert_int_equal(before - free_bytes(), 512);
    ok(cuMemAlloc_v2(&b, 10 * MIB));
    assert_int_equal(before - free_bytes(), 512 + 10 * MIB);
    ok(cuMemFree_v2(a));
    ok(cuMemFree_v2(b));
    assert_int_equal(free_bytes(), before);
}

static void wrong_allocations_are_refused(void **state)
{
    (void)state;
    CUdeviceptr a = 7;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&a, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 512));
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, 256 * MIB + 1));
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, SIZE_MAX));
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, (size_t)INT64_MAX + 1));
    assert_int_equal(a, 7); /* outputs are untouched */
    ok(cuMemAlloc_v2(&a, 4096));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a + 512));
    ok(cuMemFree_v2(a));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2((CUdeviceptr)(uintptr_t)&a));
    ok(cuMemFree_v2(0));
}

static void running_out_and_recovering(void **state)
{
    (void)state;
    CUdeviceptr held[64];
    unsigned count = 0;
    while (cuMemAlloc_v2(&held[count], 4 * MIB) == CUDA_SUCCESS)
        count++;
    assert_int_equal(count, 64); /* all of it can be had, and no context takes any */
    ok(cuMemFree_v2(held[10]));
    ok(cuMemFree_v2(held[40]));
    ok(cuMemAlloc_v2(&held[10], 8 * MIB)); /* not contiguous: physical memory does not fragment */
    for (unsigned i = 0; i < count; i++) {
        if (i != 40)
            ok(cuMemFree_v2(held[i]));
    }
    assert_int_equal(free_bytes(), 256 * MIB);
}

static void freed_memory_is_given_back_to_the_host(void **state)
{
    (void)state;
    CUdeviceptr a, b;
    ok(cuMemAlloc_v2(&a, 64 * MIB));
    memset(host(a), 0xab, 64 * MIB);
    ok(cuMemFree_v2(a));
    ok(cuMemAlloc_v2(&b, 64 * MIB));
    assert_int_equal(a, b);
    for (size_t i = 0; i < 64 * MIB; i += 4096)
        assert_int_equal(((unsigned char *)host(b))[i], 0);
    ok(cuMemFree_v2(b));
}

static void neighbours_keep_their_bytes(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    static CUdeviceptr at[COUNT];
    static unsigned size[COUNT];
    unsigned seed = 1;
    for (unsigned round = 0; round < 20 * COUNT; round++) {
        unsigned i = (unsigned)rand_r(&seed) % COUNT;
        if (at[i]) {
            unsigned char *bytes = host(at[i]);
            assert_int_equal(bytes[0], (unsigned char)i);
            assert_int_equal(bytes[size[i] - 1], (unsigned char)i);
            ok(cuMemFree_v2(at[i]));
            at[i] = 0;
        } else {
            size[i] = 1 + (unsigned)rand_r(&seed) % 20000;
            ok(cuMemAlloc_v2(&at[i], size[i]));
            memset(host(at[i]), (int)i, size[i]);
        }
    }
    for (unsigned i = 0; i < COUNT; i++)
        ok(cuMemFree_v2(at[i]));
    assert_int_equal(free_bytes(), 256 * MIB);
}

static void rows_are_aligned(void **state)
{
    (void)state;
    CUdeviceptr a;
    size_t row;
    ok(cuMemAllocPitch_v2(&a, &row, 1000, 10, 4));
    assert_int_equal(row, 1024);
    CUdeviceptr base;
    size_t size;
    ok(cuMemGetAddressRange_v2(&base, &size, a + 9 * row));
    assert_int_equal(base, a);
    assert_int_equal(size, 10 * row);
    ok(cuMemFree_v2(a));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&a, &row, 1000, 10, 3));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&a, &row, 0, 10, 4));
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2(&a, &row, SIZE_MAX / 2, SIZE_MAX / 2, 4));
}

static unsigned narrow(CUpointer_attribute attribute, CUdeviceptr address)
{
    unsigned value = 99;
    ok(cuPointerGetAttribute(&value, attribute, address));
    return value;
}

static uint64_t wide(CUpointer_attribute attribute, CUdeviceptr address)
{
    uint64_t value = 99;
    ok(cuPointerGetAttribute(&value, attribute, address));
    return value;
}

static void pointer_attributes(void **state)
{
    (void)state;
    CUdeviceptr a, b, base;
    CUcontext context, current;
    ok(cuCtxGetCurrent(&current));
    ok(cuMemAlloc_v2(&a, 5000));
    ok(cuMemAlloc_v2(&b, 5000));
    ok(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, a + 100));
    assert_ptr_equal(context, current);
    assert_int_equal(narrow(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a), CU_MEMORYTYPE_DEVICE);
    assert_int_equal(narrow(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a), 0);
    assert_int_equal(narrow(CU_POINTER_ATTRIBUTE_IS_MANAGED, a), 0);
    assert_int_equal(wide(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a + 4999), a);
    assert_int_equal(wide(CU_POINTER_ATTRIBUTE_RANGE_SIZE, a + 4999), 5000);
    assert_int_not_equal(wide(CU_POINTER_ATTRIBUTE_BUFFER_ID, a), wide(CU_POINTER_ATTRIBUTE_BUFFER_ID, b));
    size_t size;
    ok(cuMemGetAddressRange_v2(&base, &size, a + 10));
    assert_int_equal(base, a);
    assert_int_equal(size, 5000);
    ok(cuMemGetAddressRange_v2(NULL, NULL, a));
    expect_error(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, (CUdeviceptr)(uintptr_t)&size));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        (CUdeviceptr)(uintptr_t)&size));
    CUpointer_attribute several[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    unsigned type = 9;
    int ordinal = 9;
    void *into[] = {&type, &ordinal};
    ok(cuPointerGetAttributes(2, several, into, (CUdeviceptr)(uintptr_t)&size)); /* of unknown memory: nothing */
    assert_int_equal(type, 0);
    assert_int_equal(ordinal, CU_DEVICE_INVALID);
    ok(cuPointerGetAttributes(2, several, into, b));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(ordinal, 0);
    uint64_t id = wide(CU_POINTER_ATTRIBUTE_BUFFER_ID, a);
    ok(cuMemFree_v2(a));
    ok(cuMemAlloc_v2(&base, 5000));
    assert_int_equal(base, a);
    assert_int_not_equal(wide(CU_POINTER_ATTRIBUTE_BUFFER_ID, base), id);
    ok(cuMemFree_v2(base));
    ok(cuMemFree_v2(b));
}

static void host_memory(void **state)
{
    (void)state;
    size_t before = free_bytes();
    void *pinned, *own = malloc(100000);
    CUdeviceptr device;
    unsigned flags;
    ok(cuMemHostAlloc(&pinned, 100000, CU_MEMHOSTALLOC_PORTABLE));
    memset(pinned, 1, 100000);
    assert_int_equal(free_bytes(), before);
    ok(cuMemHostGetDevicePointer_v2(&device, pinned, 0));
    assert_ptr_equal(host(device), pinned);
    ok(cuMemHostGetFlags(&flags, pinned));
    assert_int_equal(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    assert_int_equal(narrow(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device), CU_MEMORYTYPE_HOST);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(device));
    ok(cuMemFreeHost(pinned));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAllocHost_v2(&pinned, 0));
    ok(cuMemHostRegister_v2(own, 100000, 0));
    expect_error(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2((char *)own + 10, 10, 0));
    ok(cuMemHostUnregister(own));
    expect_error(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(own));
    free(own);
}

static void managed_memory(void **state)
{
    (void)state;
    CUdeviceptr a;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&a, 4096, 0));
    ok(cuMemAllocManaged(&a, 512 * MIB, CU_MEM_ATTACH_GLOBAL)); /* may be more than the device has */
    ((char *)host(a))[512 * MIB - 1] = 1;
    assert_int_equal(narrow(CU_POINTER_ATTRIBUTE_IS_MANAGED, a), 1);
    ok(cuMemAdvise(a, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    ok(cuMemPrefetchAsync(a, 4096, 0, NULL));
    ok(cuMemFree_v2(a));
}

static void *allocate_and_free(void *context)
{
    ok(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 500; i++) {
        CUdeviceptr a, b;
        ok(cuMemAlloc_v2(&a, 1 + i * 37));
        ok(cuMemAlloc_v2(&b, 3000));
        memset(host(a), 1, 1 + i * 37);
        ok(cuMemFree_v2(a));
        ok(cuMemFree_v2(b));
    }
    return NULL;
}

static void several_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    CUcontext context;
    ok(cuCtxGetCurrent(&context));
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, context), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(free_bytes(), 256 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_memory_goes_down_and_up_by_blocks),
        cmocka_unit_test(wrong_allocations_are_refused),
        cmocka_unit_test(running_out_and_recovering),
        cmocka_unit_test(freed_memory_is_given_back_to_the_host),
        cmocka_unit_test(neighbours_keep_their_bytes),
        cmocka_unit_test(rows_are_aligned),
        cmocka_unit_test(pointer_attributes),
        cmocka_unit_test(host_memory),
        cmocka_unit_test(managed_memory),
        cmocka_unit_test(several_threads),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
