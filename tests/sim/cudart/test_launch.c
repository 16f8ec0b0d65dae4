#include "cudart_test.h"

#include <stdatomic.h>
#include <unistd.h>

/* What nvcc makes of `__global__ void known(int)`: a host function that stands for the kernel. */
static void known(void)
{
}

static void unknown(void)
{
}

static void **image;
static const struct {
    int magic, version;
    const void *image;
    void *more;
} wrapped = {0x466243b1, 1, "code", NULL};

static int register_known(void **state)
{
    (void)state;
    image = __cudaRegisterFatBinary((void *)&wrapped);
    __cudaRegisterFunction(image, (const char *)known, (char *)"_Z5knowni", "_Z5knowni", -1, NULL, NULL, NULL, NULL,
                           NULL);
    __cudaRegisterFatBinaryEnd(image);
    return 0;
}

static const dim3 one = {1, 1, 1}, some = {128, 1, 1};
static int argument = 5;
static void *arguments[] = {&argument};

static void kernels_launch_by_each_call(void **state)
{
    (void)state;
    ok(cudaLaunchKernel((const void *)known, some, some, arguments, 0, NULL));
    ok(cudaLaunchKernel_ptsz((const void *)known, some, some, arguments, 0, NULL));
    ok(cudaLaunchCooperativeKernel((const void *)known, one, some, arguments, 0, NULL));
    struct cudaLaunchConfig_st config = {.gridDim = one, .blockDim = some};
    ok(cudaLaunchKernelExC(&config, (const void *)known, arguments));
    ok(cudaDeviceSynchronize());
    ok(cudaGetLastError());
}

static void wrong_launches_are_refused(void **state)
{
    (void)state;
    const dim3 none = {0, 1, 1}, big = {1024, 2, 1};
    expect_error(cudaErrorInvalidDeviceFunction, cudaLaunchKernel((const void *)unknown, one, one, NULL, 0, NULL));
    expect_error(cudaErrorInvalidConfiguration, cudaLaunchKernel((const void *)known, none, one, arguments, 0, NULL));
    expect_error(cudaErrorInvalidConfiguration, cudaLaunchKernel((const void *)known, one, big, arguments, 0, NULL));
    expect_error(cudaErrorInvalidConfiguration, cudaGetLastError());
    ok(cudaGetLastError());
}

/* The steps of `known<<<some, one, 64, stream>>>(5)` as nvcc 13 writes them. */
static void launches_by_handle(void **state)
{
    (void)state;
    CUstream stream, popped = NULL;
    ok(cudaStreamCreate(&stream));
    CUkernel kernel = NULL;
    dim3 grid, block;
    size_t shared_bytes = 0;
    ok(__cudaGetKernel(&kernel, (const void *)known));
    assert_int_equal(__cudaPushCallConfiguration(some, one, 64, stream), 0);
    ok(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &popped));
    assert_true(grid.x == 128 && block.x == 1 && shared_bytes == 64 && popped == stream);
    ok(__cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, popped));
    ok(cudaStreamSynchronize(stream));
    expect_error(cudaErrorMissingConfiguration, __cudaPopCallConfiguration(&grid, &block, &shared_bytes, &popped));
    CUfunction function = NULL;
    ok(cudaGetFuncBySymbol(&function, (const void *)known));
    assert_non_null(function);
    ok(cudaStreamDestroy(stream));
    cudaGetLastError();
}

static atomic_int asked, done;

/* Not before the test has seen that it is pending, or has failed to. */
static void work(void *data)
{
    (void)data;
    for (int i = 0; i < 100000 && !asked; i++)
        usleep(100);
    atomic_store(&done, 1);
}

static void runs_in_stream_order(void **state)
{
    (void)state;
    CUstream stream;
    ok(cudaStreamCreateWithFlags(&stream, CU_STREAM_NON_BLOCKING));
    ok(cudaLaunchHostFunc(stream, work, NULL));
    ok(cudaLaunchKernel((const void *)known, some, some, arguments, 0, stream));
    expect_error(cudaErrorNotReady, cudaStreamQuery(stream));
    atomic_store(&asked, 1);
    ok(cudaStreamSynchronize(stream));
    assert_int_equal(atomic_load(&done), 1);
    ok(cudaStreamDestroy(stream));
    cudaGetLastError();
}

static void kernels_have_attributes(void **state)
{
    (void)state;
    struct cudaFuncAttributes found;
    ok(cudaFuncGetAttributes(&found, (const void *)known));
    assert_true(found.maxThreadsPerBlock == 1024 && found.numRegs > 0);
    ok(cudaFuncSetAttribute((const void *)known, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10));
    ok(cudaFuncGetAttributes(&found, (const void *)known));
    assert_int_equal(found.maxDynamicSharedSizeBytes, 64 << 10);
    ok(cudaLaunchKernel((const void *)known, some, some, arguments, 60 << 10, NULL));
    expect_error(cudaErrorInvalidValue,
                 cudaFuncSetAttribute((const void *)known, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 30));
    expect_error(cudaErrorInvalidDeviceFunction, cudaFuncGetAttributes(&found, (const void *)unknown));
    int blocks = 0, fewer = 0;
    ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)known, 128, 0));
    ok(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&fewer, (const void *)known, 1024, 0, 0));
    assert_true(blocks > fewer && fewer > 0);
    cudaGetLastError();
}

static void a_reset_loads_again(void **state)
{
    (void)state;
    ok(cudaDeviceReset());
    ok(cudaLaunchKernel((const void *)known, some, some, arguments, 0, NULL));
    ok(cudaSetDevice(1));
    ok(cudaLaunchKernel((const void *)known, some, some, arguments, 0, NULL));
    ok(cudaDeviceSynchronize());
    ok(cudaSetDevice(0));
    __cudaUnregisterFatBinary(image);
    expect_error(cudaErrorInvalidDeviceFunction, cudaLaunchKernel((const void *)known, one, one, NULL, 0, NULL));
    cudaGetLastError();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_launch_by_each_call),
        cmocka_unit_test(wrong_launches_are_refused),
        cmocka_unit_test(launches_by_handle),
        cmocka_unit_test(runs_in_stream_order),
        cmocka_unit_test(kernels_have_attributes),
        cmocka_unit_test(a_reset_loads_again),
    };
    return cmocka_run_group_tests(tests, register_known, NULL);
}
