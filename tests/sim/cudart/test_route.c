/* How the runtime comes to the driver, on a driver that offers cuGetProcAddress alone. The driver is loaded once a process, so the
   program is run again for each way in which a driver can be of no use. "test_route count [NAME]" only asks how many
   devices there are. It returns the error, or 0 if it is NAME. */
#include "cudart_test.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_libcuda.h"

static int asked(const char *symbol, unsigned long long flags)
{
    const struct fake_query *queries;
    size_t (*read_queries)(const struct fake_query **);
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(handle);
    void *address = dlsym(handle, "fake_queries");
    assert_non_null(address);
    memcpy(&read_queries, &address, sizeof address);
    size_t count = read_queries(&queries);
    assert_true(count < FAKE_QUERIES_MAX);
    int found = 0;
    for (size_t i = 0; i < count; i++)
        found += strcmp(queries[i].symbol, symbol) == 0 && queries[i].flags == flags;
    return found;
}

static void asks_for_both_streams_by_base_name(void **state)
{
    (void)state;
    void *p = NULL;
    ok(cudaMalloc(&p, 100));
    assert_ptr_equal(p, (void *)(uintptr_t)(0x700000000 + 100));
    static const char *const names[] = {
        "cuMemAlloc", "cuMemFree", "cuMemGetInfo", "cuMemAllocPitch", "cuMemAllocAsync", "cuMemFreeAsync",
        "cuMemAllocFromPoolAsync", "cuPointerGetAttributes", "cuMemcpyHtoD", "cuMemcpyAsync", "cuStreamSynchronize",
        "cuEventRecord", "cuLaunchKernel", "cuLaunchHostFunc", "cuMemAllocManaged", "cuMemHostAlloc",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (asked(names[i], CU_GET_PROC_ADDRESS_LEGACY_STREAM) != 1 ||
            asked(names[i], CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 1)
            fail_msg("%s is not asked for once with each stream", names[i]);
    }
    assert_int_equal(asked("cuMemAlloc_v2", CU_GET_PROC_ADDRESS_LEGACY_STREAM), 0);
}

static void a_missing_function_is_an_error(void **state)
{
    (void)state;
    size_t pitch;
    void *p = NULL;
    expect_error(cudaErrorCallRequiresNewerDriver, cudaMallocPitch(&p, &pitch, 10, 10));
    expect_error(cudaErrorCallRequiresNewerDriver, cudaDeviceSynchronize());
    expect_error(cudaErrorCallRequiresNewerDriver, cudaGetLastError());
    ok(cudaGetLastError());
}

/* What the device cannot get over stays the last error; what the runtime has no number for is unknown. */
static void sticky_errors_stay(void **state)
{
    (void)state;
    expect_error(cudaErrorUnknown, cudaMemcpy((void *)1, "a", 1, COPY_HOST_TO_DEVICE));
    expect_error(cudaErrorUnknown, cudaGetLastError());
    ok(cudaGetLastError());
    expect_error(cudaErrorIllegalAddress, cudaFree((void *)1));
    expect_error(cudaErrorIllegalAddress, cudaPeekAtLastError());
    expect_error(cudaErrorIllegalAddress, cudaGetLastError());
    expect_error(cudaErrorIllegalAddress, cudaGetLastError());
}

static void no_use_after_fork(void **state)
{
    (void)state;
    void *p = NULL;
    ok(cudaMalloc(&p, 1));
    pid_t child = fork();
    if (child == 0)
        _exit(cudaMalloc(&p, 1));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), cudaErrorInitializationError);
}

/* What a program started with `name` set to `value` gets of cudaGetDeviceCount. */
static int count_error(const char *name, const char *value)
{
    pid_t child = fork();
    if (child == 0) {
        if (name)
            setenv(name, value, 1);
        execl("/proc/self/exe", "test_route", "count", (char *)NULL);
        _exit(120);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void says_why_there_is_no_device(void **state)
{
    (void)state;
    assert_int_equal(count_error(NULL, NULL), cudaSuccess);
    assert_int_equal(count_error("FAKE_NO_DEVICE", "1"), cudaErrorNoDevice);
    assert_int_equal(count_error("FAKE_INIT", "100"), cudaErrorNoDevice);
    assert_int_equal(count_error("FAKE_INIT", "46"), cudaErrorDevicesUnavailable);
    assert_int_equal(count_error("FAKE_VERSION", "11080"), cudaErrorInsufficientDriver);
    cudaError_t enough = CUDART_MAJOR == 12 ? cudaSuccess : cudaErrorInsufficientDriver;
    assert_int_equal(count_error("FAKE_VERSION", "12000"), enough);
    assert_int_equal(count_error("LD_LIBRARY_PATH", "/nonexistent"), cudaErrorInsufficientDriver);
}

int main(int argc, char **argv)
{
    int count = 77;
    /* Where a driver is installed, no program is without one: nothing to be seen there. */
    if (argc > 1 && strcmp(getenv("LD_LIBRARY_PATH"), "/nonexistent") == 0 && dlopen("libcuda.so.1", RTLD_LAZY))
        return cudaErrorInsufficientDriver;
    if (argc > 1) {
        cudaError_t error = cudaGetDeviceCount(&count);
        if ((error == cudaSuccess) != (count > 0) || cudaGetLastError() != error)
            return 121;
        return argc > 2 ? strcmp(argv[2], cudaGetErrorName(error)) : error;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_why_there_is_no_device),
        cmocka_unit_test(asks_for_both_streams_by_base_name),
        cmocka_unit_test(a_missing_function_is_an_error),
        cmocka_unit_test(no_use_after_fork),
        cmocka_unit_test(sticky_errors_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
