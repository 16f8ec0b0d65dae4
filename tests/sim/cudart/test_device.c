#include "cudart_test.h"

static void versions_are_those_of_the_build(void **state)
{
    (void)state;
    int runtime = 0, driver = 0;
    ok(cudaRuntimeGetVersion(&runtime));
    assert_int_equal(runtime, CUDART_MAJOR == 12 ? 12090 : 13000);
    ok(cudaDriverGetVersion(&driver));
    assert_true(driver >= 13000);
}

static void one_device_after_another(void **state)
{
    (void)state;
    int count = 0, device = -1;
    ok(cudaGetDeviceCount(&count));
    assert_int_equal(count, 2);
    ok(cudaGetDevice(&device));
    assert_int_equal(device, 0);
    ok(cudaSetDevice(1));
    ok(cudaGetDevice(&device));
    assert_int_equal(device, 1);
    expect_error(cudaErrorInvalidDevice, cudaSetDevice(2));
    expect_error(cudaErrorInvalidDevice, cudaSetDevice(-1));
    ok(cudaGetDevice(&device));
    assert_int_equal(device, 1);
    ok(cudaSetDevice(0));
    expect_error(cudaErrorInvalidDevice, cudaGetLastError());
}

static void properties_are_the_attributes(void **state)
{
    (void)state;
    struct cudaDeviceProp prop;
    memset(&prop, 0xaa, sizeof prop);
#if CUDART_MAJOR == 12
    ok(cudaGetDeviceProperties_v2(&prop, 0));
#else
    ok(cudaGetDeviceProperties(&prop, 0));
#endif
    int value = 0;
    size_t total = 0;
#define INT(majors, field, number) \
    IN_##majors(ok(cudaDeviceGetAttribute(&value, number, 0)); assert_int_equal(prop.field, value);)
#define UINT(majors, field, number) INT(majors, field, number)
#define SIZE(majors, field, number) INT(majors, field, number)
#define INT2(majors, field, a, b)
#define INT3(majors, field, a, b, c)
#define BYTES(majors, type, field, count)
#define PLAIN(majors, type, field)
#include "device_prop.def"
    assert_true(prop.name[0] != '\0' && strlen(prop.name) < sizeof prop.name);
    ok(cudaMemGetInfo(NULL, &total));
    assert_true(prop.totalGlobalMem == total);
    assert_true(prop.warpSize == 32 && prop.multiProcessorCount > 0 && prop.maxThreadsPerMultiProcessor > 0);
    assert_true(prop.maxGridSize[0] > 0 && prop.sharedMemPerBlock > 0 && prop.sharedMemPerBlockOptin > 0);
    assert_true(prop.major >= 8);
#if CUDART_MAJOR == 12
    struct {
        char old[offsetof(struct cudaDeviceProp, hostRegisterSupported)];
        char guard[8];
    } eleven;
    memset(&eleven, 0x55, sizeof eleven);
    ok(cudaGetDeviceProperties((struct cudaDeviceProp *)&eleven, 0));
    assert_memory_equal(eleven.old, &prop, sizeof eleven.old);
    assert_memory_equal(eleven.guard, "\x55\x55\x55\x55\x55\x55\x55\x55", 8);
#endif
    expect_error(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&value, 10, 7));
    cudaGetLastError();
}

static void devices_are_found_by_their_bus(void **state)
{
    (void)state;
    char text[32] = "";
    int device = -1;
    ok(cudaDeviceGetPCIBusId(text, sizeof text, 1));
    ok(cudaDeviceGetByPCIBusId(&device, text));
    assert_int_equal(device, 1);
}

static void peer_access_is_enabled_once(void **state)
{
    (void)state;
    int can = -1;
    ok(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    ok(cudaSetDevice(0));
    ok(cudaDeviceEnablePeerAccess(1, 0));
    expect_error(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
    ok(cudaDeviceDisablePeerAccess(1));
    expect_error(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(1));
    cudaGetLastError();
}

static void limits_are_kept(void **state)
{
    (void)state;
    size_t before = 0, after = 0;
    ok(cudaDeviceGetLimit(&before, CU_LIMIT_STACK_SIZE));
    ok(cudaDeviceSetLimit(CU_LIMIT_STACK_SIZE, before + 1024));
    ok(cudaDeviceGetLimit(&after, CU_LIMIT_STACK_SIZE));
    assert_true(after >= before + 1024);
    int config = -1;
    ok(cudaDeviceSetCacheConfig(2));
    ok(cudaDeviceGetCacheConfig(&config));
    assert_int_equal(config, 2);
}

static void reset_frees_everything(void **state)
{
    (void)state;
    size_t before = 0, after = 0;
    void *p = NULL;
    ok(cudaMemGetInfo(&before, NULL));
    ok(cudaMalloc(&p, 64 << 20));
    ok(cudaDeviceReset());
    ok(cudaMemGetInfo(&after, NULL));
    assert_true(after == before);
    expect_error(cudaErrorInvalidValue, cudaFree(p));
    ok(cudaMalloc(&p, 1 << 20));
    ok(cudaMemset(p, 1, 1 << 20));
    ok(cudaFree(p));
    cudaGetLastError();
}

static void driver_by_name(void **state)
{
    (void)state;
    void *function = NULL, *own = NULL;
    int status = -1;
    ok(cudaGetDriverEntryPoint("cuMemAlloc", &function, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    assert_non_null(function);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
    CUresult (*allocate)(CUdeviceptr *, size_t);
    memcpy(&allocate, &function, sizeof allocate);
    CUdeviceptr address = 0;
    assert_int_equal(allocate(&address, 4096), CUDA_SUCCESS);
    ok(cudaFree((void *)(uintptr_t)address));
    ok(cudaGetDriverEntryPointByVersion("cuStreamSynchronize", &function, 12000, 1, &status));
    ok(cudaGetDriverEntryPointByVersion_ptsz("cuStreamSynchronize", &own, 12000, 0, &status));
    assert_true(function && own && function != own);
    ok(cudaGetDriverEntryPoint("cuNoSuchThing", &function, 0, &status));
    assert_null(function);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void *driver_function(const char *name)
{
    void *found = NULL;
    int status = -1;
    ok(cudaGetDriverEntryPointByVersion(name, &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    assert_non_null(found);
    return found;
}

/* What the program makes current through the driver is where the runtime works. */
static void a_context_of_the_driver_counts(void **state)
{
    (void)state;
    __typeof__(cuDevicePrimaryCtxRetain) *retain;
    __typeof__(cuCtxSetCurrent) *set_current;
    __typeof__(cuDevicePrimaryCtxRelease_v2) *release;
    void *address = driver_function("cuDevicePrimaryCtxRetain");
    memcpy(&retain, &address, sizeof address);
    address = driver_function("cuCtxSetCurrent");
    memcpy(&set_current, &address, sizeof address);
    address = driver_function("cuDevicePrimaryCtxRelease");
    memcpy(&release, &address, sizeof address);
    CUcontext context;
    int device = -1;
    void *p = NULL;
    struct cudaPointerAttributes attributes;
    ok(cudaSetDevice(0));
    assert_int_equal(retain(&context, 1), CUDA_SUCCESS);
    assert_int_equal(set_current(context), CUDA_SUCCESS);
    ok(cudaGetDevice(&device));
    assert_int_equal(device, 1);
    ok(cudaMalloc(&p, 4096));
    ok(cudaPointerGetAttributes(&attributes, p));
    assert_int_equal(attributes.device, 1);
    ok(cudaFree(p));
    assert_int_equal(set_current(NULL), CUDA_SUCCESS);
    ok(cudaGetDevice(&device));
    assert_int_equal(device, 0);
    ok(cudaMalloc(&p, 4096));
    ok(cudaPointerGetAttributes(&attributes, p));
    assert_int_equal(attributes.device, 0);
    ok(cudaFree(p));
    assert_int_equal(release(1), CUDA_SUCCESS);
}

/* A reset leaves neither less nor more of those who have the primary context than it found, but for the runtime. */
static void a_reset_releases_the_runtimes_own(void **state)
{
    (void)state;
    __typeof__(cuDevicePrimaryCtxRetain) *retain;
    __typeof__(cuDevicePrimaryCtxRelease_v2) *release;
    void *address = driver_function("cuDevicePrimaryCtxRetain");
    memcpy(&retain, &address, sizeof address);
    address = driver_function("cuDevicePrimaryCtxRelease");
    memcpy(&release, &address, sizeof address);
    CUcontext context;
    ok(cudaSetDevice(1));
    ok(cudaFree(NULL));
    assert_int_equal(retain(&context, 1), CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        ok(cudaDeviceReset());
        ok(cudaFree(NULL));
    }
    ok(cudaDeviceReset());
    ok(cudaDeviceReset());
    assert_int_equal(release(1), CUDA_SUCCESS);
    assert_int_equal(release(1), CUDA_ERROR_INVALID_CONTEXT);
    ok(cudaSetDevice(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_are_those_of_the_build),
        cmocka_unit_test(one_device_after_another),
        cmocka_unit_test(properties_are_the_attributes),
        cmocka_unit_test(devices_are_found_by_their_bus),
        cmocka_unit_test(peer_access_is_enabled_once),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(reset_frees_everything),
        cmocka_unit_test(driver_by_name),
        cmocka_unit_test(a_context_of_the_driver_counts),
        cmocka_unit_test(a_reset_releases_the_runtimes_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
