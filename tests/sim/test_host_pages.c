/* Pages in the host's memory, and another device's, through virtual memory management. The settings are 256MiB, count=2 and
   hostpages=64MiB:4MiB. Child processes have others. */
#include <stdlib.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extra.h"
#include "sim_test.h"

enum { HOST_PAGE = 4 << 20, HOST_BYTES = 64 << 20 };

static CUmemAllocationProp on_host(CUmemLocationType type)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {type, 0}};
}

static struct segalloc_sim_link link_of(int device)
{
    segalloc_sim_link_fn ask = (segalloc_sim_link_fn)dlsym(RTLD_DEFAULT, "segalloc_sim_link");
    struct segalloc_sim_link link;
    assert_non_null(ask);
    assert_int_equal(ask(device, &link), 0);
    return link;
}

static int attribute(CUdevice_attribute which)
{
    int value;
    ok(cuDeviceGetAttribute(&value, which, 0));
    return value;
}

static void wrong_pages_are_refused(void **state)
{
    (void)state;
    size_t granule;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_host(CU_MEM_LOCATION_TYPE_HOST), shared = prop,
                        node = on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA),
                        current = on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
    ok(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    assert_int_equal(granule, HOST_PAGE);
    ok(cuMemGetAllocationGranularity(&granule, &node, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE, &prop, 0)); /* half a granule */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, HOST_PAGE, &current, 0));
    shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, HOST_PAGE, &shared, 0));
    node.location.id = 1;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, HOST_PAGE, &node, 0));
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, HOST_BYTES + HOST_PAGE, &prop, 0));
    assert_int_equal(link_of(0).host_bytes, 0);
}

/* A range of a page of the device, one of the host's, and one of the device again. */
static CUdeviceptr mixed_range(void)
{
    CUdeviceptr base;
    const CUmemAllocationProp device = on_device(0), host_page = on_host(CU_MEM_LOCATION_TYPE_HOST);
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ok(cuMemAddressReserve(&base, 3 * HOST_PAGE, 0, 0, 0));
    for (int i = 0; i < 3; i++) {
        CUmemGenericAllocationHandle handle;
        ok(cuMemCreate(&handle, HOST_PAGE, i == 1 ? &host_page : &device, 0));
        ok(cuMemMap(base + (CUdeviceptr)i * HOST_PAGE, HOST_PAGE, 0, handle, 0));
        ok(cuMemRelease(handle));
    }
    ok(cuMemSetAccess(base, 3 * HOST_PAGE, &access, 1));
    return base;
}

static void a_mixed_range_is_memory_and_its_link_is_counted(void **state)
{
    (void)state;
    size_t before = free_bytes();
    CUdeviceptr base = mixed_range();
    unsigned type;
    unsigned char *copy = malloc(3 * HOST_PAGE);
    assert_int_equal(free_bytes(), before - 2 * HOST_PAGE);
    assert_int_equal(link_of(0).host_bytes, HOST_PAGE);
    ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base + HOST_PAGE));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    uint64_t touched = link_of(0).touched_bytes;
    ok(cuMemsetD8_v2(base, 7, 3 * HOST_PAGE));
    ok(cuMemcpyDtoH_v2(copy, base + HOST_PAGE / 2, HOST_PAGE)); /* half of it in the host's page */
    ok(cuMemsetD8_v2(base, 8, HOST_PAGE));                      /* none */
    ok(cuCtxSynchronize());
    assert_int_equal(link_of(0).touched_bytes - touched, HOST_PAGE + HOST_PAGE / 2);
    assert_int_equal(link_of(1).touched_bytes, 0);
    assert_int_equal(copy[HOST_PAGE - 1], 7);
    free(copy);
    ok(cuMemUnmap(base, 3 * HOST_PAGE));
    ok(cuMemAddressFree(base, 3 * HOST_PAGE));
    assert_int_equal(free_bytes(), before);
    assert_int_equal(link_of(0).host_bytes, 0);
}

/* Bytes of kernels that say what they touch are known. Others are counted by themselves, while there are far pages. */
static void kernels_that_say_nothing_are_counted(void **state)
{
    (void)state;
    CUmodule module;
    CUfunction kernel;
    segalloc_sim_touches_fn touches = (segalloc_sim_touches_fn)dlsym(RTLD_DEFAULT, "segalloc_sim_touches");
    ok(cuModuleLoadData(&module, "no code is read"));
    ok(cuModuleGetFunction(&kernel, module, "any"));
    struct segalloc_sim_link first = link_of(0);
    ok(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    ok(cuCtxSynchronize());
    CUdeviceptr base = mixed_range();
    touches(base, 3 * HOST_PAGE, 1);
    ok(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    ok(cuCtxSynchronize());
    assert_int_equal(link_of(0).touched_bytes - first.touched_bytes, HOST_PAGE);
    assert_int_equal(link_of(0).untold - first.untold, 0);
    ok(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    ok(cuCtxSynchronize());
    assert_int_equal(link_of(0).touched_bytes - first.touched_bytes, HOST_PAGE);
    assert_int_equal(link_of(0).untold - first.untold, 1);
    assert_int_equal(link_of(1).untold, 0);
    ok(cuMemUnmap(base, 3 * HOST_PAGE));
    ok(cuMemAddressFree(base, 3 * HOST_PAGE));
    ok(cuModuleUnload(module));
}

static void a_neighbours_page_is_far_for_one_device(void **state)
{
    (void)state;
    CUdeviceptr base;
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp there = on_device(1);
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    size_t before = free_bytes();
    uint64_t touched = link_of(0).touched_bytes, of_peers = link_of(0).peer_bytes;
    ok(cuMemAddressReserve(&base, PAGE, 0, 0, 0));
    ok(cuMemCreate(&handle, PAGE, &there, 0));
    ok(cuMemMap(base, PAGE, 0, handle, 0));
    ok(cuMemSetAccess(base, PAGE, &access, 1));
    ok(cuMemsetD8_v2(base, 3, PAGE));
    ok(cuCtxSynchronize());
    assert_int_equal(link_of(0).touched_bytes - touched, PAGE);
    assert_int_equal(link_of(0).peer_bytes - of_peers, PAGE);
    assert_int_equal(link_of(0).host_bytes, 0);
    assert_int_equal(free_bytes(), before);
    ok(cuMemUnmap(base, PAGE));
    ok(cuMemRelease(handle));
    ok(cuMemAddressFree(base, PAGE));
}

/* The host's memory ends; a page that was given back can be had again. */
static void host_memory_is_bounded(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle handle[HOST_BYTES / HOST_PAGE + 1];
    const CUmemAllocationProp prop = on_host(CU_MEM_LOCATION_TYPE_HOST);
    const int most = HOST_BYTES / HOST_PAGE;
    for (int i = 0; i < most; i++)
        ok(cuMemCreate(&handle[i], HOST_PAGE, &prop, 0));
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle[most], HOST_PAGE, &prop, 0));
    ok(cuMemRelease(handle[0]));
    ok(cuMemCreate(&handle[0], HOST_PAGE, &prop, 0));
    for (int i = 0; i < most; i++)
        ok(cuMemRelease(handle[i]));
}

/* In a process of its own: which locations a driver makes pages at, as two bits. */
static int offers(void)
{
    size_t granule;
    const CUmemAllocationProp host_page = on_host(CU_MEM_LOCATION_TYPE_HOST),
                              node = on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA);
    use_device_0(NULL);
    int said = attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) |
               attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) << 1;
    int does = (cuMemGetAllocationGranularity(&granule, &host_page, 0) == CUDA_SUCCESS) |
               (cuMemGetAllocationGranularity(&granule, &node, 0) == CUDA_SUCCESS) << 1;
    return said == does ? said : -1;
}

static void expect_offered(const char *settings, int want)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        setenv("SEGALLOC_SIM", settings, 1);
        execl("/proc/self/exe", "test_host_pages", "--offers", NULL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), want);
}

static void drivers_without_host_pages(void **state)
{
    (void)state;
    expect_offered("256MiB", 3);
    expect_offered("256MiB,hostpages=off", 0);
    expect_offered("256MiB,driver=12.9", 2);
    expect_offered("256MiB,driver=12.8", 0);
    expect_offered("256MiB,no-vmm", 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--offers") == 0)
        return offers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wrong_pages_are_refused, use_device_0, leave_device_0),
        cmocka_unit_test_setup_teardown(a_mixed_range_is_memory_and_its_link_is_counted, use_device_0, leave_device_0),
        cmocka_unit_test_setup_teardown(kernels_that_say_nothing_are_counted, use_device_0, leave_device_0),
        cmocka_unit_test_setup_teardown(a_neighbours_page_is_far_for_one_device, use_device_0, leave_device_0),
        cmocka_unit_test_setup_teardown(host_memory_is_bounded, use_device_0, leave_device_0),
        cmocka_unit_test(drivers_without_host_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
