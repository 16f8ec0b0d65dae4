#include "cudart_test.h"

static void gives_and_takes_back(void **state)
{
    (void)state;
    char *p = NULL, *q = NULL;
    ok(cudaMalloc((void **)&p, 1000));
    ok(cudaMalloc((void **)&q, 1000));
    assert_non_null(p);
    assert_true(p != q);
    assert_int_equal((uintptr_t)p % 256, 0);
    ok(cudaFree(p));
    ok(cudaFree(q));
}

static void nothing_is_null(void **state)
{
    (void)state;
    void *p = (void *)1;
    ok(cudaMalloc(&p, 0));
    assert_null(p);
    ok(cudaFree(NULL));
    ok(cudaFreeHost(NULL));
    p = (void *)1;
    ok(cudaMallocHost(&p, 0));
    assert_null(p);
}

static void refuses_what_it_did_not_give(void **state)
{
    (void)state;
    char *p = NULL;
    int local;
    expect_error(cudaErrorInvalidValue, cudaMalloc(NULL, 16));
    ok(cudaMalloc((void **)&p, 4096));
    expect_error(cudaErrorInvalidValue, cudaFree(p + 512));
    expect_error(cudaErrorInvalidValue, cudaFree(&local));
    ok(cudaFree(p));
    expect_error(cudaErrorInvalidValue, cudaFree(p));
    expect_error(cudaErrorInvalidValue, cudaGetLastError());
    ok(cudaGetLastError());
}

static void runs_out_and_recovers(void **state)
{
    (void)state;
    size_t free_bytes = 0, total = 0, after = 0;
    ok(cudaMemGetInfo(&free_bytes, &total));
    assert_true(free_bytes > 0 && free_bytes <= total);
    void *p = (void *)7;
    expect_error(cudaErrorMemoryAllocation, cudaMalloc(&p, total + 1));
    assert_ptr_equal(p, (void *)7);
    expect_error(cudaErrorMemoryAllocation, cudaPeekAtLastError());
    expect_error(cudaErrorMemoryAllocation, cudaGetLastError());
    expect_error(cudaErrorMemoryAllocation, cudaMalloc(&p, SIZE_MAX - 100));
    ok(cudaMalloc(&p, free_bytes / 2));
    ok(cudaMemGetInfo(&after, NULL));
    assert_true(free_bytes - after >= free_bytes / 2);
    ok(cudaFree(p));
    ok(cudaMemGetInfo(&after, &total));
    assert_true(after == free_bytes);
    expect_error(cudaErrorMemoryAllocation, cudaGetLastError());
}

static void rows_are_aligned(void **state)
{
    (void)state;
    char *p = NULL;
    size_t pitch = 0;
    ok(cudaMallocPitch((void **)&p, &pitch, 1000, 7));
    assert_true(pitch >= 1000 && pitch % 256 == 0);
    ok(cudaFree(p));
    ok(cudaMallocPitch((void **)&p, &pitch, 0, 7));
    assert_null(p);
    struct cudaPitchedPtr box;
    ok(cudaMalloc3D(&box, (struct cudaExtent){100, 20, 3}));
    assert_true(box.xsize == 100 && box.ysize == 20 && box.pitch >= 100);
    ok(cudaMemset3D(box, 0x5a, (struct cudaExtent){100, 20, 3}));
    unsigned char last = 0;
    ok(cudaMemcpy(&last, (char *)box.ptr + box.pitch * 59 + 99, 1, COPY_DEVICE_TO_HOST));
    assert_int_equal(last, 0x5a);
    ok(cudaFree(box.ptr));
    expect_error(cudaErrorMemoryAllocation, cudaMalloc3D(&box, (struct cudaExtent){SIZE_MAX / 2, SIZE_MAX / 2, 8}));
}

static void pins_host_memory(void **state)
{
    (void)state;
    char *p = NULL, *device = NULL;
    unsigned flags = 0;
    ok(cudaHostAlloc((void **)&p, 5000, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(p, 1, 5000);
    ok(cudaHostGetDevicePointer((void **)&device, p, 0));
    assert_non_null(device);
    ok(cudaHostGetFlags(&flags, p));
    assert_true(flags & CU_MEMHOSTALLOC_DEVICEMAP);
    ok(cudaFreeHost(p));
    expect_error(cudaErrorInvalidValue, cudaFreeHost(p));
    char *own = aligned_alloc(4096, 8192);
    ok(cudaHostRegister(own, 8192, 0));
    expect_error(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(own, 8192, 0));
    ok(cudaHostUnregister(own));
    expect_error(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(own));
    free(own);
}

static void says_what_a_pointer_is(void **state)
{
    (void)state;
    struct cudaPointerAttributes attributes;
    char *p = NULL;
    int local;
    ok(cudaMalloc((void **)&p, 4096));
    ok(cudaPointerGetAttributes(&attributes, p + 100));
    assert_int_equal(attributes.type, MEMORY_DEVICE);
    assert_int_equal(attributes.device, 0);
    assert_ptr_equal(attributes.devicePointer, p + 100);
    assert_null(attributes.hostPointer);
    ok(cudaFree(p));
    ok(cudaPointerGetAttributes(&attributes, &local));
    assert_int_equal(attributes.type, MEMORY_UNREGISTERED);
    assert_int_equal(attributes.device, DEVICE_INVALID);
    ok(cudaMallocHost((void **)&p, 4096));
    ok(cudaPointerGetAttributes(&attributes, p));
    assert_int_equal(attributes.type, MEMORY_HOST);
    assert_ptr_equal(attributes.hostPointer, p);
    ok(cudaFreeHost(p));
    ok(cudaMallocManaged((void **)&p, 4096, CU_MEM_ATTACH_GLOBAL));
    p[4095] = 3;
    ok(cudaPointerGetAttributes(&attributes, p));
    assert_int_equal(attributes.type, MEMORY_MANAGED);
    ok(cudaFree(p));
    expect_error(cudaErrorInvalidValue, cudaMallocManaged((void **)&p, 0, CU_MEM_ATTACH_GLOBAL));
}

static void allocates_in_stream_order(void **state)
{
    (void)state;
    CUstream stream;
    CUmemoryPool pool;
    char *p = NULL;
    unsigned char byte = 0;
    ok(cudaStreamCreate(&stream));
    ok(cudaMallocAsync((void **)&p, 1 << 20, stream));
    ok(cudaMemsetAsync(p, 0x42, 1 << 20, stream));
    ok(cudaMemcpyAsync(&byte, p + 12345, 1, COPY_DEVICE_TO_HOST, stream));
    ok(cudaFreeAsync(p, stream));
    ok(cudaStreamSynchronize(stream));
    assert_int_equal(byte, 0x42);
    ok(cudaDeviceGetDefaultMemPool(&pool, 0));
    cuuint64_t threshold = UINT64_MAX, read = 0;
    ok(cudaMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    ok(cudaMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &read));
    assert_true(read == threshold);
    ok(cudaMallocFromPoolAsync((void **)&p, 4096, pool, stream));
    ok(cudaFreeAsync(p, stream));
    ok(cudaMemPoolTrimTo(pool, 0));
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    ok(cudaMemPoolCreate(&pool, &props));
    ok(cudaMallocFromPoolAsync((void **)&p, 4096, pool, stream));
    ok(cudaStreamSynchronize(stream));
    ok(cudaFree(p));
    ok(cudaMemPoolDestroy(pool));
    ok(cudaStreamDestroy(stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_and_takes_back),
        cmocka_unit_test(nothing_is_null),
        cmocka_unit_test(refuses_what_it_did_not_give),
        cmocka_unit_test(runs_out_and_recovers),
        cmocka_unit_test(rows_are_aligned),
        cmocka_unit_test(pins_host_memory),
        cmocka_unit_test(says_what_a_pointer_is),
        cmocka_unit_test(allocates_in_stream_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
