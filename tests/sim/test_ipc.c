/* Legacy handles of memory between two processes on one simulated machine: the same bytes. */
#include "sim_test.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 3 * 4096 + 100 };

static void a_handle_is_not_for_its_own_process(void **state)
{
    (void)state;
    CUdeviceptr memory, opened;
    CUipcMemHandle handle, other, garbage = {{0}};
    ok(cuMemAlloc_v2(&memory, BYTES));
    ok(cuIpcGetMemHandle(&handle, memory));
    expect_error(CUDA_ERROR_INVALID_CONTEXT,
        cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&opened, handle, 2));
    expect_error(CUDA_ERROR_INVALID_HANDLE,
        cuIpcOpenMemHandle_v2(&opened, garbage, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(NULL, memory));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, 4096));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
    ok(cuMemFree_v2(memory));
    ok(cuMemAlloc_v2(&memory, BYTES)); /* the same address, another handle */
    ok(cuIpcGetMemHandle(&other, memory));
    assert_memory_not_equal(&handle, &other, sizeof handle);
    ok(cuMemFree_v2(memory));
}

/* Exports, says so, waits for the answer and looks for what the other process has written. */
static int export_to(int channel)
{
    CUdeviceptr first, memory;
    CUipcMemHandle handle;
    char text[32], byte = 0;
    ok(cuMemAlloc_v2(&first, 700)); /* so that the block begins within a page */
    ok(cuMemAlloc_v2(&memory, BYTES));
    ok(cuMemcpyHtoD_v2(memory, "from the exporter", 18));
    ok(cuIpcGetMemHandle(&handle, memory));
    if (write(channel, &handle, sizeof handle) != sizeof handle || read(channel, &byte, 1) != 1)
        return 3;
    ok(cuMemcpyDtoH_v2(text, memory + BYTES - 18, 18));
    ok(cuMemFree_v2(memory));
    return strcmp(text, "from the importer") == 0 ? 0 : 4;
}

static int import_from(int channel)
{
    CUdeviceptr memory, again, base;
    CUipcMemHandle handle;
    char text[32];
    size_t size, before, after;
    if (read(channel, &handle, sizeof handle) != sizeof handle)
        return 5;
    ok(cuMemGetInfo_v2(&before, NULL));
    ok(cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ok(cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ok(cuMemGetInfo_v2(&after, NULL));
    assert_int_equal(again, memory);
    assert_int_equal(before, after); /* the exporter's process has it */
    ok(cuMemGetAddressRange_v2(&base, &size, memory + 10));
    assert_int_equal(base, memory);
    assert_int_equal(size, BYTES);
    ok(cuMemcpyDtoH_v2(text, memory, 18));
    assert_string_equal(text, "from the exporter");
    ok(cuMemcpyHtoD_v2(memory + BYTES - 18, "from the importer", 18));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(text, memory + BYTES - 4, 18));
    ok(cuIpcCloseMemHandle(memory));
    ok(cuMemcpyDtoH_v2(text, memory, 18)); /* still open once */
    ok(cuIpcCloseMemHandle(memory));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
    return write(channel, "", 1) == 1 ? 0 : 6;
}

/* Fresh processes: the one that runs the tests has called CUDA, so its children can't. */
static int exchange(void)
{
    int channel[2], result;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0)
        return 2;
    pid_t child = fork();
    use_device_0(NULL);
    if (child == 0)
        _exit(export_to(channel[0]));
    int own = import_from(channel[1]);
    return waitpid(child, &result, 0) == child && result == 0 ? own : 7;
}

static void two_processes_see_the_same_bytes(void **state)
{
    (void)state;
    int result;
    pid_t child = fork();
    if (child == 0)
        execl("/proc/self/exe", "test_ipc", "--exchange", NULL);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

int main(int count, char **argument)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_is_not_for_its_own_process),
        cmocka_unit_test(two_processes_see_the_same_bytes),
    };
    if (count == 2 && strcmp(argument[1], "--exchange") == 0)
        return exchange();
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
