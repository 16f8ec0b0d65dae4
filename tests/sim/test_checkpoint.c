/* Checkpoints of the process: its memory leaves the device and comes back, in the order of states that drivers have. */
#include "sim_test.h"

#include <unistd.h>

static size_t left_bytes(void)
{
    size_t left, total;
    assert_int_equal(cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
    return left;
}

static void expect_state(CUprocessState expected)
{
    CUprocessState state;
    assert_int_equal(cuCheckpointProcessGetState(getpid(), &state), CUDA_SUCCESS);
    assert_int_equal(state, expected);
}

static void memory_leaves_and_comes_back(void **state)
{
    CUdeviceptr address, all;
    unsigned char bytes[4] = {0};
    int thread = 0;
    (void)state;
    size_t before = left_bytes();
    assert_int_equal(cuMemAlloc_v2(&address, 40 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemsetD8_v2(address, 7, 40 * MIB), CUDA_SUCCESS);
    expect_state(CU_PROCESS_STATE_RUNNING);
    assert_int_equal(cuCheckpointProcessLock(getpid(), NULL), CUDA_SUCCESS);
    expect_state(CU_PROCESS_STATE_LOCKED);
    assert_int_equal(cuCheckpointProcessCheckpoint(getpid(), NULL), CUDA_SUCCESS);
    expect_state(CU_PROCESS_STATE_CHECKPOINTED);
    assert_true(left_bytes() >= before);
    assert_int_equal(cuCheckpointProcessGetRestoreThreadId(getpid(), &thread), CUDA_SUCCESS);
    assert_int_equal(thread, getpid());
    /* Another has the card meanwhile. */
    assert_int_equal(cuMemAlloc_v2(&all, left_bytes()), CUDA_SUCCESS);
    assert_int_equal(cuCheckpointProcessRestore(getpid(), NULL), CUDA_ERROR_OUT_OF_MEMORY);
    expect_state(CU_PROCESS_STATE_CHECKPOINTED);
    assert_int_equal(cuMemFree_v2(all), CUDA_SUCCESS);
    assert_int_equal(cuCheckpointProcessRestore(getpid(), NULL), CUDA_SUCCESS);
    expect_state(CU_PROCESS_STATE_LOCKED);
    assert_int_equal(cuCheckpointProcessUnlock(getpid(), NULL), CUDA_SUCCESS);
    expect_state(CU_PROCESS_STATE_RUNNING);
    assert_int_equal(left_bytes(), before - 40 * MIB);
    assert_int_equal(cuMemcpyDtoH_v2(bytes, address + 40 * MIB - 4, 4), CUDA_SUCCESS);
    assert_int_equal(bytes[3], 7);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(left_bytes(), before);
}

static void wrong_order_is_refused(void **state)
{
    CUdeviceptr managed;
    (void)state;
    assert_int_equal(cuCheckpointProcessCheckpoint(getpid(), NULL), CUDA_ERROR_ILLEGAL_STATE);
    assert_int_equal(cuCheckpointProcessRestore(getpid(), NULL), CUDA_ERROR_ILLEGAL_STATE);
    assert_int_equal(cuCheckpointProcessUnlock(getpid(), NULL), CUDA_ERROR_ILLEGAL_STATE);
    assert_int_equal(cuCheckpointProcessLock(getpid(), NULL), CUDA_SUCCESS);
    assert_int_equal(cuCheckpointProcessLock(getpid(), NULL), CUDA_ERROR_ILLEGAL_STATE);
    assert_int_equal(cuMemAllocManaged(&managed, MIB, 1), CUDA_SUCCESS);
    assert_int_equal(cuCheckpointProcessCheckpoint(getpid(), NULL), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuMemFree_v2(managed), CUDA_SUCCESS);
    assert_int_equal(cuCheckpointProcessUnlock(getpid(), NULL), CUDA_SUCCESS);
    assert_int_equal(cuCheckpointProcessGetState(getpid(), NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCheckpointProcessLock(getpid() + 1, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_leaves_and_comes_back),
        cmocka_unit_test(wrong_order_is_refused)};
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
