#include <stdlib.h>

#include "sim_test.h"

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr address;
    ok(cuMemAlloc_v2(&address, bytes));
    return address;
}

static void bytes_are_copied_in_a_row(void **state)
{
    (void)state;
    unsigned char in[3000], out[3000];
    CUdeviceptr a = allocate(3000), b = allocate(3000);
    for (unsigned i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7);
    ok(cuMemcpyHtoD_v2(a, in, sizeof in));
    ok(cuMemcpyDtoD_v2(b, a, sizeof in));
    ok(cuMemcpyDtoH_v2(out, b, sizeof out));
    assert_memory_equal(in, out, sizeof in);
    memset(out, 0, sizeof out);
    ok(cuMemcpy((CUdeviceptr)(uintptr_t)out, a, sizeof out));
    assert_memory_equal(in, out, sizeof in);
    memset(out, 0, sizeof out);
    ok(cuMemcpyHtoD_v2_ptds(b, in + 5, 10));
    ok(cuMemcpyDtoH_v2_ptds(out, b, 10));
    assert_memory_equal(in + 5, out, 10);
    ok(cuMemcpyHtoD_v2(a, in, 0));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(a + 1, in, sizeof in)); /* beyond its end */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(out, (CUdeviceptr)(uintptr_t)in, 10));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(0, in, 10));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(a, NULL, 10));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(NULL, a, 10));
    ok(cuMemFree_v2(a));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(a, in, 10));
    ok(cuMemFree_v2(b));
}

/* The source of a small copy from pageable memory may be changed as soon as the call has returned. */
static void pageable_sources_are_staged(void **state)
{
    (void)state;
    struct gate gate = {0};
    char text[32] = "before", seen[32];
    CUstream stream;
    CUdeviceptr a = allocate(sizeof text);
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    ok(cuMemcpyHtoDAsync_v2(a, text, sizeof text, stream));
    strcpy(text, "after");
    gate.open = true;
    ok(cuMemcpyDtoHAsync_v2(seen, a, sizeof seen, stream)); /* to pageable memory: complete on return */
    assert_string_equal(seen, "before");
    ok(cuMemFree_v2(a));
    ok(cuStreamDestroy_v2(stream));
}

static void pinned_copies_are_asynchronous(void **state)
{
    (void)state;
    struct gate gate = {0};
    void *pinned;
    CUstream stream;
    CUdeviceptr a = allocate(64);
    ok(cuMemAllocHost_v2(&pinned, 64));
    strcpy(pinned, "before");
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuMemsetD8Async(a, 'x', 63, stream));
    ok(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    ok(cuMemcpyDtoHAsync_v2(pinned, a, 64, stream));
    assert_string_equal(pinned, "before");
    gate.open = true;
    ok(cuStreamSynchronize(stream));
    assert_int_equal(((char *)pinned)[62], 'x');
    ok(cuMemFreeHost(pinned));
    ok(cuMemFree_v2(a));
    ok(cuStreamDestroy_v2(stream));
}

static void boxes_are_copied_plane_by_plane(void **state)
{
    (void)state;
    enum { W = 10, H = 6, D = 3, PITCH = 512 };
    unsigned char in[D][H][W], out[D][H][W], part[2][3][4];
    CUdeviceptr a = allocate(PITCH * H * D);
    for (unsigned i = 0; i < sizeof in; i++)
        ((unsigned char *)in)[i] = (unsigned char)i;
    CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = W,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = a, .dstPitch = PITCH, .WidthInBytes = W, .Height = H};
    ok(cuMemcpy2D_v2(&plane));
    ok(cuCtxSynchronize());
    assert_int_equal(((unsigned char *)host(a))[5 * PITCH + 9], in[0][5][9]);
    plane.dstPitch = W - 1;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&plane));
    plane.dstPitch = (size_t)1 << 63;
    plane.Height = 3; /* the last row 2^64 bytes from the first */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&plane));
    plane.Height = 1;
    plane.dstY = 2; /* and here the only one */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&plane));
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = W, .srcHeight = H,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = a, .dstPitch = PITCH, .dstHeight = H, .WidthInBytes = W,
        .Height = H, .Depth = D};
    ok(cuMemcpy3D_v2(&box));
    CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = a, .srcPitch = PITCH, .srcHeight = H,
        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .WidthInBytes = W, .Height = H, .Depth = D};
    ok(cuMemcpy3DAsync_v2(&back, NULL));
    assert_memory_equal(in, out, sizeof in);
    back = (CUDA_MEMCPY3D){.srcXInBytes = 2, .srcY = 1, .srcZ = 1, .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = a, .srcPitch = PITCH, .srcHeight = H, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = part,
        .WidthInBytes = 4, .Height = 3, .Depth = 2};
    ok(cuMemcpy3D_v2(&back));
    for (unsigned z = 0; z < 2; z++) {
        for (unsigned y = 0; y < 3; y++)
            assert_memory_equal(part[z][y], &in[z + 1][y + 1][2], 4);
    }
    box.Depth = D + 1;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&box));
    box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuMemcpy3D_v2(&box));
    ok(cuMemFree_v2(a));
}

static void memory_is_set_by_each_width(void **state)
{
    (void)state;
    CUdeviceptr a = allocate(4096);
    unsigned char *bytes = host(a);
    ok(cuMemsetD8_v2(a, 0x11, 4096));
    ok(cuMemsetD16_v2(a + 100, 0x2233, 10));
    ok(cuMemsetD32_v2(a + 200, 0x44556677, 10));
    ok(cuMemsetD2D8_v2(a + 1024, 64, 0x88, 8, 4));
    ok(cuMemsetD2D32Async_ptsz(a + 2048, 64, 0x99aabbcc, 2, 2, NULL));
    ok(cuCtxSynchronize());
    uint16_t half;
    uint32_t word;
    memcpy(&half, bytes + 118, 2);
    memcpy(&word, bytes + 236, 4);
    assert_int_equal(half, 0x2233);
    assert_int_equal(bytes[120], 0x11);
    assert_int_equal(word, 0x44556677);
    assert_int_equal(bytes[240], 0x11);
    assert_int_equal(bytes[1024 + 3 * 64 + 7], 0x88);
    assert_int_equal(bytes[1024 + 3 * 64 + 8], 0x11);
    memcpy(&word, bytes + 2048 + 64 + 4, 4);
    assert_int_equal(word, 0x99aabbcc);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(a + 2, 0, 1));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(a, 0, 4097));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(a, 8, 0, 16, 2));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(a, (size_t)1 << 63, 0, 16, 3)); /* 2^64 bytes apart */
    ok(cuMemsetD8_v2(a, 0, 0));
    ok(cuMemFree_v2(a));
}

/* Setting much to zero must not touch it all, and must not touch its neighbours. */
static void zeroing_much(void **state)
{
    (void)state;
    size_t bytes = 40 * MIB;
    CUdeviceptr a = allocate(bytes);
    memset(host(a), 5, bytes);
    ok(cuMemsetD8_v2(a + 1000, 0, bytes - 3000));
    ok(cuCtxSynchronize());
    unsigned char *seen = host(a);
    assert_int_equal(seen[999], 5);
    for (size_t i = 1000; i < bytes - 2000; i++)
        assert_int_equal(seen[i], 0);
    assert_int_equal(seen[bytes - 2000], 5);
    ok(cuMemFree_v2(a));
}

static void words_in_stream_order(void **state)
{
    (void)state;
    CUdeviceptr a = allocate(64);
    CUstream writer, waiter;
    ok(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&waiter, CU_STREAM_NON_BLOCKING));
    ok(cuMemsetD8Async(a, 0, 64, writer));
    ok(cuStreamSynchronize(writer));
    ok(cuStreamWaitValue32_v2(waiter, a, 5, CU_STREAM_WAIT_VALUE_GEQ));
    ok(cuStreamWriteValue64_v2(waiter, a + 8, 77, 0));
    sleep_ms(3);
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(waiter));
    ok(cuStreamWriteValue32_v2(writer, a, 5, 0));
    ok(cuStreamSynchronize(waiter));
    assert_int_equal(((uint64_t *)host(a))[1], 77);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(writer, a + 2, 5, 0));
    CUstreamBatchMemOpParams batch[4] = {
        {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, a + 16, {.value = 6}, 0, 0}},
        {.operation = CU_STREAM_MEM_OP_BARRIER},
        {.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, a + 24, {.value64 = 9}, CU_STREAM_WAIT_VALUE_EQ, 0}},
        {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, a + 32, {.value64 = 8}, 0, 0}},
    };
    ok(cuStreamWaitValue32_v2(writer, a + 16, 6, CU_STREAM_WAIT_VALUE_EQ)); /* for what comes before the batch's wait */
    ok(cuStreamWriteValue64_v2(writer, a + 24, 9, 0));
    ok(cuStreamBatchMemOp_v2(waiter, 4, batch, 0));
    ok(cuStreamSynchronize(waiter));
    assert_int_equal(((uint64_t *)host(a))[4], 8);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2(waiter, 4, batch, 1));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2(waiter, 257, batch, 0));
    batch[3].operation = 0;
    batch[0].writeValue.value = 7;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2(waiter, 4, batch, 0));
    ok(cuStreamSynchronize(waiter));
    assert_int_equal(((uint32_t *)host(a))[4], 6); /* none of them */
    ok(cuStreamDestroy_v2(writer));
    ok(cuStreamDestroy_v2(waiter));
    ok(cuMemFree_v2(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_copied_in_a_row),
        cmocka_unit_test(pageable_sources_are_staged),
        cmocka_unit_test(pinned_copies_are_asynchronous),
        cmocka_unit_test(boxes_are_copied_plane_by_plane),
        cmocka_unit_test(memory_is_set_by_each_width),
        cmocka_unit_test(zeroing_much),
        cmocka_unit_test(words_in_stream_order),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
