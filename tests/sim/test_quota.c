/* A part of the device that there is for cuMemGetInfo alone. The environment of this test: quota_mb=101 */
#include "sim_test.h"

static void totals_that_differ(void **state)
{
    (void)state;
    size_t left_bytes, total_bytes, device_bytes;
    CUdeviceptr all, more;
    assert_int_equal(cuDeviceTotalMem_v2(&device_bytes, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemGetInfo_v2(&left_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(device_bytes, 256 * MIB);
    assert_int_equal(total_bytes, 100 * MIB); /* of whole pages */
    assert_int_equal(left_bytes, 100 * MIB);
    assert_int_equal(cuMemAlloc_v2(&all, 100 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemGetInfo_v2(&left_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(left_bytes, 0);
    assert_int_equal(cuMemFree_v2(all), CUDA_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(totals_that_differ)};
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
