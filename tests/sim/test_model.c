/* A card by its name. The environment of this test: device=h100 */
#include "sim_test.h"

#include <string.h>

static int attribute(CUdevice_attribute which)
{
    int value = -1;
    assert_int_equal(cuDeviceGetAttribute(&value, which, 0), CUDA_SUCCESS);
    return value;
}

static void says_what_it_is(void **state)
{
    (void)state;
    char name[64];
    int devices = 0, driver = 0;
    assert_int_equal(cuDeviceGetCount(&devices), CUDA_SUCCESS);
    assert_int_equal(devices, 1);
    assert_int_equal(cuDriverGetVersion(&driver), CUDA_SUCCESS);
    assert_int_equal(driver, 13000);
    assert_int_equal(cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
    assert_string_equal(name, "NVIDIA H100 80GB HBM3");
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 0);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 132);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32); /* of all devices */
}

static void free_memory_is_odd(void **state)
{
    (void)state;
    size_t left_bytes, after, total_bytes, device_bytes;
    CUdeviceptr all, more;
    assert_int_equal(cuDeviceTotalMem_v2(&device_bytes, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemGetInfo_v2(&left_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(device_bytes, 81008 * MIB);
    assert_int_equal(total_bytes, device_bytes);
    assert_in_range(left_bytes, 80000 * MIB, total_bytes - 1);
    assert_int_not_equal(left_bytes % (2 * MIB), 0);
    assert_int_equal(cuMemAlloc_v2(&all, left_bytes), CUDA_ERROR_OUT_OF_MEMORY); /* in whole pages */
    assert_int_equal(cuMemAlloc_v2(&all, left_bytes / (2 * MIB) * (2 * MIB)), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc_v2(&more, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemFree_v2(all), CUDA_SUCCESS);
    assert_int_equal(cuMemGetInfo_v2(&after, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(after, left_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_what_it_is), cmocka_unit_test(free_memory_is_odd)};
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
