/* The hazard checker: what it reports, and what it must not. */
#include "extra.h"
#include "sim_test.h"

static struct gate gate;
static CUstream a, b;
static CUevent event;
static CUdeviceptr memory;

static void expect_hazards(uint64_t before, uint64_t more)
{
    assert_int_equal(segalloc_sim_hazards() - before, more);
    gate.open = true;
    ok(cuCtxSynchronize());
}

static void begin(void)
{
    gate.open = gate.reached = false;
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    segalloc_sim_owner(memory, 4096, 1);
    ok(cuMemsetD8Async(memory, 1, 4096, a));
    segalloc_sim_owner(memory, 4096, 2);
}

static void bytes_for_two_owners_without_order(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    begin();
    ok(cuMemsetD8Async(memory + 4096, 2, 4096, b));
    assert_int_equal(segalloc_sim_hazards(), before);
    ok(cuMemsetD8Async(memory + 1024, 2, 64, b));
    expect_hazards(before, 1);
    segalloc_sim_owner(memory, 4096, 3);
    ok(cuMemsetD8Async(memory, 2, 4096, b)); /* all before it is complete */
    expect_hazards(before, 1);
}

static void order_by_stream_and_by_event_is_seen(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    begin();
    ok(cuMemsetD8Async(memory, 2, 4096, a));
    expect_hazards(before, 0);
    begin();
    ok(cuEventRecord(event, a));
    ok(cuStreamWaitEvent(b, event, 0));
    ok(cuMemsetD8Async(memory, 2, 4096, b));
    expect_hazards(before, 0);
    gate.open = false;
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    ok(cuEventRecord(event, a)); /* too early to cover what follows */
    segalloc_sim_owner(memory, 4096, 1);
    ok(cuMemsetD8Async(memory, 1, 4096, a));
    segalloc_sim_owner(memory, 4096, 2);
    ok(cuStreamWaitEvent(b, event, 0));
    ok(cuMemsetD8Async(memory, 2, 4096, b));
    expect_hazards(before, 1);
}

static void two_addresses_of_a_page_are_the_same_bytes(void **state)
{
    (void)state;
    uint64_t before = segalloc_sim_hazards();
    CUmemAllocationProp prop = on_device(0);
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemGenericAllocationHandle page;
    CUdeviceptr base;
    ok(cuMemAddressReserve(&base, 2 * PAGE, 0, 0, 0));
    ok(cuMemCreate(&page, PAGE, &prop, 0));
    ok(cuMemMap(base, PAGE, 0, page, 0));
    ok(cuMemMap(base + PAGE, PAGE, 0, page, 0));
    ok(cuMemSetAccess(base, 2 * PAGE, &access, 1));
    segalloc_sim_owner(base, PAGE, 1);
    segalloc_sim_owner(base + PAGE, PAGE, 2);
    gate.open = false;
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    ok(cuMemsetD8Async(base, 1, 64, a));
    ok(cuMemsetD8Async(base + PAGE, 1, 64, b));
    ok(cuMemsetD8Async(base + PAGE + 64, 1, 64, b));
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    expect_hazards(before, 1);
    gate.open = false;
    ok(cuLaunchHostFunc(a, wait_at_gate, &gate));
    ok(cuMemsetD8Async(base, 1, 64, a));
    ok(cuMemUnmap(base + PAGE, PAGE));
    assert_int_equal(segalloc_sim_hazards() - before, 1);
    ok(cuMemUnmap(base, PAGE)); /* here the set is still to come */
    ok(cuMemMap(base, PAGE, 0, page, 0));
    ok(cuMemSetAccess(base, PAGE, &access, 1));
    expect_hazards(before, 2);
    ok(cuMemUnmap(base, PAGE));
    expect_hazards(before, 2);
    ok(cuMemRelease(page));
    ok(cuMemAddressFree(base, 2 * PAGE));
}

static int set_up(void **state)
{
    use_device_0(state);
    ok(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ok(cuMemAlloc_v2(&memory, MIB));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_for_two_owners_without_order),
        cmocka_unit_test(order_by_stream_and_by_event_is_seen),
        cmocka_unit_test(two_addresses_of_a_page_are_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, set_up, leave_device_0);
}
