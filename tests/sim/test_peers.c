/* Devices that can't reach each other: memory of one is refused for the other, and host pages are for both. Settings: count=2,no-p2p. */
#include "sim_test.h"

static CUdeviceptr map(const CUmemAllocationProp *prop)
{
    CUmemGenericAllocationHandle page;
    CUdeviceptr address;
    ok(cuMemCreate(&page, PAGE, prop, 0));
    ok(cuMemAddressReserve(&address, PAGE, 0, 0, 0));
    ok(cuMemMap(address, PAGE, 0, page, 0));
    ok(cuMemRelease(page));
    return address;
}

static void give_back(CUdeviceptr address)
{
    ok(cuMemUnmap(address, PAGE));
    ok(cuMemAddressFree(address, PAGE));
}

static void no_access_is_given(void **state)
{
    (void)state;
    unsigned long long flags = 7;
    int value = 7;
    const CUmemAccessDesc both[] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    const CUmemAccessDesc none = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    for (int device = 0; device < 2; device++) {
        const CUmemAllocationProp prop = on_device(device);
        CUdeviceptr address = map(&prop);
        expect_error(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuMemSetAccess(address, PAGE, &both[1 - device], 1));
        expect_error(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuMemSetAccess(address, PAGE, both, 2));
        ok(cuMemGetAccess(&flags, &both[1 - device].location, address));
        assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        ok(cuMemSetAccess(address, PAGE, &both[device], 1));
        ok(cuMemSetAccess(address, PAGE, &none, 1));
        give_back(address);
    }
    ok(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    assert_int_equal(value, 0);
}

static void the_host_is_reached(void **state)
{
    (void)state;
    CUmemAllocationProp prop = on_device(0);
    const CUmemAccessDesc both[] = {access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
    CUdeviceptr address = map(&prop);
    ok(cuMemSetAccess(address, PAGE, both, 2));
    give_back(address);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_access_is_given),
        cmocka_unit_test(the_host_is_reached),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
