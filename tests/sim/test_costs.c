/* What calls would cost: by themselves, and for each handle on each device that they map, unmap or give access to. The
   settings: two devices, cost=cuMemSetAccess:1000+10 and one of a function that there is none of. */
#include <dlfcn.h>

#include "api/extra_calls.h"
#include "sim_test.h"

enum { PAGES = 5, MOST = 1000 };

static uint64_t cost_of(const char *symbol)
{
    static struct segalloc_sim_call row[MOST];
    segalloc_sim_calls_fn calls;
    *(void **)&calls = dlsym(RTLD_DEFAULT, "segalloc_sim_calls");
    assert_non_null(calls);
    size_t count = calls(row, MOST);
    assert_true(count <= MOST);
    for (size_t i = 0; i < count; i++)
        if (strcmp(row[i].symbol, symbol) == 0)
            return row[i].ns;
    fail_msg("there is no %s", symbol);
    return 0;
}

static uint64_t all(void)
{
    segalloc_sim_ns_fn ns;
    *(void **)&ns = dlsym(RTLD_DEFAULT, "segalloc_sim_ns");
    assert_non_null(ns);
    return ns();
}

static void handles_cost_each(void **state)
{
    (void)state;
    CUmemAllocationProp prop = on_device(0);
    CUmemAccessDesc access[2];
    CUmemGenericAllocationHandle page[PAGES];
    CUdeviceptr address;
    for (int i = 0; i < 2; i++)
        access[i] = access_of(i, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ok(cuMemAddressReserve(&address, PAGES * PAGE, 0, 0, 0));
    for (size_t i = 0; i < PAGES; i++) {
        ok(cuMemCreate(&page[i], PAGE, &prop, 0));
        ok(cuMemMap(address + i * PAGE, PAGE, 0, page[i], 0));
        ok(cuMemRelease(page[i]));
    }
    assert_int_equal(cost_of("cuMemCreate"), PAGES * 198000);
    assert_int_equal(cost_of("cuMemMap"), PAGES * 6500);
    assert_int_equal(cost_of("cuMemRelease"), PAGES * 25000);
    ok(cuMemSetAccess(address, PAGES * PAGE, access, 1));
    assert_int_equal(cost_of("cuMemSetAccess"), 1000 + PAGES * 10);
    ok(cuMemSetAccess(address, 2 * PAGE, access, 2));
    assert_int_equal(cost_of("cuMemSetAccess"), 1000 + PAGES * 10 + 1000 + 2 * 2 * 10);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address + PAGES * PAGE, PAGE, access, 1)); /* a call */
    assert_int_equal(cost_of("cuMemSetAccess"), 1000 + PAGES * 10 + 1000 + 2 * 2 * 10 + 1000);
    ok(cuMemUnmap(address, PAGE));
    assert_int_equal(cost_of("cuMemUnmap"), 5000 + 26000);
    uint64_t before = all();
    ok(cuMemUnmap(address + PAGE, (PAGES - 1) * PAGE));
    assert_int_equal(cost_of("cuMemUnmap"), 2 * 5000 + PAGES * 26000);
    assert_int_equal(all() - before, 5000 + (PAGES - 1) * 26000);
    ok(cuMemAddressFree(address, PAGES * PAGE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(handles_cost_each)};
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
