/* The bookkeeping card: its memory, its addresses and its events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ledger_driver.h"

static const uint64_t GRANULE = UINT64_C(2) << 20;

static void memory_is_booked_and_refused(void **state)
{
    (void)state;
    const struct sg_driver *driver = &sg_ledger_driver;
    struct sg_ledger card;
    CUmemGenericAllocationHandle handle[4], none = 77;
    size_t free_bytes, total;
    sg_ledger_init(&card, 3 * GRANULE, GRANULE);
    sg_ledger_use(&card);
    for (int i = 0; i < 3; i++)
        assert_int_equal(driver->create(&handle[i], GRANULE, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(driver->create(&none, GRANULE, NULL, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(none, 77);
    assert_int_equal(driver->mem_info(&free_bytes, &total), CUDA_SUCCESS);
    assert_int_equal(free_bytes, 0);
    assert_int_equal(total, 3 * GRANULE);
    assert_int_equal(driver->release(handle[0]), CUDA_SUCCESS);
    assert_int_equal(driver->create(&handle[3], 2 * GRANULE, NULL, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(driver->create(&handle[3], GRANULE, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(card.device[0].peak_bytes, 3 * GRANULE);
    assert_int_equal(driver->create(&handle[3], UINT64_MAX, NULL, 0), CUDA_ERROR_OUT_OF_MEMORY);
    sg_ledger_fini(&card);
}

static void test_addresses_differ(void **state)
{
    (void)state;
    struct sg_ledger card;
    CUdeviceptr a, b;
    sg_ledger_init(&card, GRANULE, GRANULE);
    sg_ledger_use(&card);
    assert_int_equal(sg_ledger_driver.address_reserve(&a, 10 * GRANULE, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(sg_ledger_driver.address_reserve(&b, GRANULE, 0, 0, 0), CUDA_SUCCESS);
    assert_true(a % GRANULE == 0 && b >= a + 10 * GRANULE);
    sg_ledger_fini(&card);
}

static void events_complete_at_once(void **state)
{
    (void)state;
    const struct sg_driver *driver = &sg_ledger_driver;
    struct sg_ledger card;
    CUevent event[200];
    sg_ledger_init(&card, GRANULE, GRANULE);
    sg_ledger_use(&card);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(driver->event_create(&event[i], 0), CUDA_SUCCESS);
        assert_int_equal(driver->event_query(event[i]), CUDA_SUCCESS); /* never recorded: complete, as in CUDA */
        assert_int_equal(driver->ctx_record_event(NULL, event[i]), CUDA_SUCCESS);
        assert_int_equal(driver->event_query(event[i]), CUDA_ERROR_NOT_READY);
    }
    card.device[0].recordings_complete = 50;
    assert_int_equal(driver->event_query(event[49]), CUDA_SUCCESS);
    assert_int_equal(driver->event_query(event[50]), CUDA_ERROR_NOT_READY);
    assert_int_equal(driver->event_synchronize(event[99]), CUDA_SUCCESS);
    assert_int_equal(driver->event_query(event[99]), CUDA_SUCCESS);
    assert_int_equal(driver->event_query(event[100]), CUDA_ERROR_NOT_READY);
    assert_int_equal(driver->ctx_record_event(NULL, event[0]), CUDA_SUCCESS);
    assert_int_equal(driver->event_query(event[0]), CUDA_ERROR_NOT_READY); /* of the latest recording */
    sg_ledger_fini(&card);
}

/* What has no unit of its own must still answer as the core expects. */
static void calls_without_books_answer(void **state)
{
    (void)state;
    int vmm = 0;
    struct sg_ledger card;
    size_t granularity = 0, total = 0;
    sg_ledger_init(&card, 5 * GRANULE, GRANULE);
    sg_ledger_use(&card);
    assert_true(sg_driver_has_vmm(&sg_ledger_driver));
    assert_int_equal(sg_ledger_driver.device_attribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0),
        CUDA_SUCCESS);
    assert_int_equal(vmm, 1);
    assert_int_equal(sg_ledger_driver.granularity(&granularity, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_SUCCESS);
    assert_int_equal(granularity, GRANULE);
    assert_int_equal(sg_ledger_driver.device_total(&total, 0), CUDA_SUCCESS);
    assert_int_equal(total, 5 * GRANULE);
    sg_ledger_fini(&card);
}

/* The cases of ledger_driver.h and of driver.h. */
static void worked_case(void **state)
{
    (void)state;
    const struct sg_driver *driver = &sg_ledger_driver;
    struct sg_ledger card;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.location.id = 3};
    uint64_t used;
    sg_ledger_init(&card, UINT64_C(24) << 30, GRANULE);
    sg_ledger_use(&card);
    assert_int_equal(driver->address_reserve(&address, UINT64_C(48) << 30, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(address, UINT64_C(0x100000000000000));
    assert_int_equal(driver->create(&handle, 2 << 20, &prop, 0), CUDA_SUCCESS);
    assert_int_equal(handle, 0x200003);
    assert_int_equal(card.device[3].used_bytes, 2 << 20);
    assert_int_equal(driver->map(address, 2 << 20, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(driver->map(address, 4 << 20, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver->release(handle), CUDA_SUCCESS);
    assert_int_equal(card.device[3].used_bytes, 0);
    card.device[0].total_bytes = UINT64_C(8) << 30; /* a quota of 8 GiB, of which 2 are in use */
    card.device[0].used_bytes = UINT64_C(2) << 30;
    assert_true(sg_driver_used_memory(driver, 0, UINT64_C(24) << 30, 0, &used));
    assert_int_equal(used, UINT64_C(18) << 30);
    sg_ledger_fini(&card);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_case),
        cmocka_unit_test(memory_is_booked_and_refused),
        cmocka_unit_test(test_addresses_differ),
        cmocka_unit_test(events_complete_at_once),
        cmocka_unit_test(calls_without_books_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
