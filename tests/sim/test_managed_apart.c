/* The setting managed-apart: managed memory takes nothing of a device. */
#include "sim_test.h"

static void managed_memory_apart_takes_none_of_the_card(void **state)
{
    (void)state;
    CUdeviceptr a;
    ok(cuMemAllocManaged(&a, 512 * MIB, CU_MEM_ATTACH_GLOBAL));
    ok(cuMemPrefetchAsync(a, 100 * MIB, 0, NULL));
    ok(cuMemsetD8_v2(a + 100 * MIB, 1, 10 * MIB));
    assert_int_equal(free_bytes(), 256 * MIB);
    ok(cuMemFree_v2(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(managed_memory_apart_takes_none_of_the_card)};
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
