#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "sim_test.h"

static int start(void **state)
{
    (void)state;
    ok(cuInit(0));
    return 0;
}

static void devices_have_names_numbers_and_buses(void **state)
{
    (void)state;
    int count, value, by_bus;
    char text[64];
    size_t bytes;
    CUuuid a, b;
    ok(cuDeviceGetCount(&count));
    assert_int_equal(count, 2);
    CUdevice device;
    ok(cuDeviceGet(&device, 1));
    expect_error(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
    expect_error(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
    ok(cuDeviceTotalMem_v2(&bytes, 1));
    assert_int_equal(bytes, GIB);
    ok(cuDeviceGetName(text, sizeof text, 0));
    assert_true(strlen(text) > 0);
    ok(cuDeviceGetUuid_v2(&a, 0));
    ok(cuDeviceGetUuid_v2(&b, 1));
    assert_memory_not_equal(&a, &b, sizeof a);
    ok(cuDeviceGetPCIBusId(text, sizeof text, 1));
    ok(cuDeviceGetByPCIBusId(&by_bus, text));
    assert_int_equal(by_bus, 1);
    expect_error(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&by_bus, "80000000:00.0"));
    ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    assert_int_equal(value, 32);
    ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    assert_int_equal(value, 1);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, (CUdevice_attribute)5000, 0));
    ok(cuDeviceCanAccessPeer(&value, 0, 1));
    assert_int_equal(value, 1);
    ok(cuDeviceCanAccessPeer(&value, 0, 0));
    assert_int_equal(value, 0);
}

static void without_a_context(void **state)
{
    (void)state;
    CUdeviceptr address;
    CUcontext context = (CUcontext)&address;
    CUstream stream;
    ok(cuCtxGetCurrent(&context));
    assert_null(context);
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&address, 512));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo_v2(NULL, NULL));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(NULL));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&context));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)&address));
}

static void primary_contexts(void **state)
{
    (void)state;
    CUcontext a, b;
    unsigned flags;
    int active;
    ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 0);
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    ok(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
    ok(cuDevicePrimaryCtxRetain(&a, 0));
    ok(cuDevicePrimaryCtxRetain(&b, 0));
    assert_ptr_equal(a, b);
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(a)); /* a primary one is released, not destroyed */
    ok(cuDevicePrimaryCtxRelease_v2(0));
    ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 1);
    assert_int_equal(flags, CU_CTX_SCHED_BLOCKING_SYNC);
    ok(cuCtxSetCurrent(a));
    CUdeviceptr address;
    CUstream stream;
    ok(cuMemAlloc_v2(&address, MIB));
    ok(cuStreamCreate(&stream, 0));
    ok(cuDevicePrimaryCtxRelease_v2(0)); /* the last one takes all with it */
    expect_error(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemGetInfo_v2(NULL, NULL));
    ok(cuDevicePrimaryCtxRetain(&b, 0));
    ok(cuCtxSetCurrent(b));
    assert_int_equal(free_bytes(), GIB);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    ok(cuMemAlloc_v2(&address, MIB));
    ok(cuDevicePrimaryCtxReset_v2(0));
    ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 0);
    ok(cuDevicePrimaryCtxRelease_v2(0));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    ok(cuCtxSetCurrent(NULL));
}

/* Who had taken a primary context up before a reset has it still, and releases it. */
static void a_reset_releases_nothing(void **state)
{
    (void)state;
    CUcontext context;
    unsigned flags;
    int active;
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuDevicePrimaryCtxReset_v2(0));
    ok(cuDevicePrimaryCtxReset_v2(0));
    ok(cuDevicePrimaryCtxRelease_v2(0));
    ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 0);
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuDevicePrimaryCtxRelease_v2(0));
    ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 1);
    ok(cuDevicePrimaryCtxRelease_v2(0));
    ok(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 0);
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
}

static void created_contexts_and_the_stack(void **state)
{
    (void)state;
    CUcontext a, b, seen;
    CUdevice device;
    CUdeviceptr of_a, of_b;
    ok(cuCtxCreate_v2(&a, 0, 0));
    ok(cuMemAlloc_v2(&of_a, MIB));
    ok(cuCtxCreate_v4(&b, NULL, CU_CTX_SCHED_SPIN, 1));
    ok(cuMemAlloc_v2(&of_b, MIB));
    ok(cuCtxGetDevice(&device));
    assert_int_equal(device, 1);
    ok(cuCtxPopCurrent_v2(&seen));
    assert_ptr_equal(seen, b);
    ok(cuCtxGetCurrent(&seen));
    assert_ptr_equal(seen, a);
    ok(cuCtxPushCurrent_v2(b));
    ok(cuMemFree_v2(of_a)); /* of another context, and another device */
    ok(cuCtxSetCurrent(a)); /* replaces the top */
    ok(cuCtxGetDevice(&device));
    assert_int_equal(device, 0);
    ok(cuCtxSetCurrent(b));
    ok(cuCtxDestroy_v2(b)); /* the current one: popped */
    ok(cuCtxGetCurrent(&seen));
    assert_ptr_equal(seen, a);
    expect_error(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxDestroy_v2(b));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(of_b));
    ok(cuCtxDestroy_v2(a));
    ok(cuCtxGetCurrent(&seen));
    assert_null(seen);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v2(&a, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, 0));
    expect_error(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&a, 0, 2));
}

static void *look_at_current(void *unused)
{
    (void)unused;
    CUcontext context = (CUcontext)1;
    ok(cuCtxGetCurrent(&context));
    return context;
}

static void each_thread_has_its_own_current_context(void **state)
{
    (void)state;
    CUcontext a;
    pthread_t thread;
    void *seen;
    ok(cuCtxCreate_v2(&a, 0, 0));
    assert_int_equal(pthread_create(&thread, NULL, look_at_current, NULL), 0);
    pthread_join(thread, &seen);
    assert_null(seen);
    ok(cuCtxDestroy_v2(a));
}

static void destroying_waits_for_work(void **state)
{
    (void)state;
    CUcontext a;
    CUstream stream;
    struct gate gate = {.open = true};
    ok(cuCtxCreate_v2(&a, 0, 0));
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    ok(cuCtxDestroy_v2(a));
    assert_true(gate.reached);
}

static void mappings_outlive_the_context(void **state)
{
    (void)state;
    CUcontext a;
    CUdeviceptr base;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(0);
    CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ok(cuCtxCreate_v2(&a, 0, 0));
    ok(cuMemCreate(&handle, PAGE, &prop, 0));
    ok(cuMemAddressReserve(&base, PAGE, 0, 0, 0));
    ok(cuMemMap(base, PAGE, 0, handle, 0));
    ok(cuMemSetAccess(base, PAGE, &access, 1));
    ok(cuCtxDestroy_v2(a));
    ((char *)host(base))[0] = 1;
    ok(cuMemUnmap(base, PAGE));
    ok(cuMemRelease(handle));
    ok(cuMemAddressFree(base, PAGE));
}

static void two_devices(void **state)
{
    (void)state;
    CUcontext zero, one;
    CUdeviceptr a, b;
    char text[16] = "to the other";
    CUevent event;
    unsigned long long flags;
    ok(cuDevicePrimaryCtxRetain(&zero, 0));
    ok(cuDevicePrimaryCtxRetain(&one, 1));
    ok(cuCtxSetCurrent(zero));
    ok(cuEventCreate(&event, 0));
    ok(cuMemAlloc_v2(&a, 4096));
    ok(cuMemcpyHtoD_v2(a, text, sizeof text));
    ok(cuCtxSetCurrent(one));
    ok(cuMemAlloc_v2(&b, 4096));
    assert_int_equal(free_bytes(), GIB - 4096);
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, NULL)); /* of the other context */
    ok(cuMemcpyPeer(b, one, a, zero, sizeof text));
    ok(cuCtxSynchronize());
    assert_string_equal(host(b), text);
    ok(cuCtxEnablePeerAccess(zero, 0));
    expect_error(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(zero, 0));
    ok(cuCtxDisablePeerAccess(zero));
    expect_error(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(zero));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(one, 0));
    int ordinal;
    ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a));
    assert_int_equal(ordinal, 0);
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(1);
    CUmemAccessDesc access[2] = {access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ)};
    CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUdeviceptr base;
    ok(cuMemCreate(&handle, PAGE, &prop, 0));
    ok(cuMemAddressReserve(&base, PAGE, 0, 0, 0));
    ok(cuMemMap(base, PAGE, 0, handle, 0));
    ok(cuMemSetAccess(base, PAGE, access, 2));
    ok(cuMemGetAccess(&flags, &where, base));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    where.id = 1;
    ok(cuMemGetAccess(&flags, &where, base));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base));
    assert_int_equal(ordinal, 1);
    ok(cuMemcpyDtoD_v2(base, b, sizeof text)); /* by device 1 */
    ok(cuCtxSynchronize());
    ok(cuCtxSetCurrent(zero));
    ok(cuMemcpyDtoD_v2(a, base, sizeof text)); /* device 0 may read it */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(base, a, sizeof text)); /* but not write */
    ok(cuMemcpyPeer(base, one, a, zero, sizeof text));
    ok(cuCtxSetCurrent(one));
    ok(cuMemUnmap(base, PAGE));
    ok(cuMemRelease(handle));
    ok(cuMemAddressFree(base, PAGE));
    ok(cuMemFree_v2(a));
    ok(cuMemFree_v2(b));
    ok(cuDevicePrimaryCtxRelease_v2(0));
    ok(cuDevicePrimaryCtxRelease_v2(1));
    ok(cuCtxSetCurrent(NULL));
}

static void settings_belong_to_their_context(void **state)
{
    (void)state;
    CUcontext a;
    size_t value;
    unsigned version;
    unsigned long long id;
    ok(cuCtxCreate_v2(&a, 0, 0));
    ok(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    ok(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    assert_int_equal(value, 4096);
    expect_error(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit(&value, (CUlimit)77));
    ok(cuCtxGetApiVersion(a, &version));
    ok(cuCtxGetId(a, &id));
    ok(cuCtxDestroy_v2(a));
}

static void error_texts(void **state)
{
    (void)state;
    const char *text;
    ok(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "CUDA_ERROR_OUT_OF_MEMORY");
    ok(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "out of memory");
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGetErrorString((CUresult)12345, &text));
    assert_null(text);
}

/* cuCtxDetach ends a context that has no user left. */
static void a_detached_context_ends_with_its_last_user(void **state)
{
    (void)state;
    CUcontext context, again, primary, current;
    CUdeviceptr block;
    unsigned version;
    size_t before, left, total;
    ok(cuCtxCreate_v2(&context, 0, 0));
    ok(cuMemGetInfo_v2(&before, &total));
    ok(cuMemAlloc_v2(&block, 1 << 20));
    ok(cuCtxAttach(&again, 0));
    assert_ptr_equal(again, context);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuCtxAttach(&again, 1));
    ok(cuCtxDetach(again));
    ok(cuCtxGetApiVersion(context, &version)); /* who made it still uses it */
    ok(cuCtxDetach(context));
    expect_error(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxGetApiVersion(context, &version));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuCtxDetach(context));
    ok(cuCtxGetCurrent(&current));
    assert_null(current);
    ok(cuDevicePrimaryCtxRetain(&primary, 0));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuCtxDetach(primary)); /* not current */
    ok(cuCtxSetCurrent(primary));
    ok(cuMemGetInfo_v2(&left, &total));
    assert_int_equal(left, before);
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuCtxAttach(&again, 0));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuCtxDetach(primary));
    ok(cuCtxSetCurrent(NULL));
    ok(cuDevicePrimaryCtxRelease_v2(0));
}

/* The processor time of this thread, in ns, for some contexts that are made and destroyed. */
static uint64_t cost_of_contexts(int count)
{
    struct timespec start, end;
    CUcontext context;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (int i = 0; i < count; i++) {
        ok(cuCtxCreate_v2(&context, 0, 0));
        ok(cuCtxDestroy_v2(context));
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (uint64_t)(end.tv_sec - start.tv_sec) * 1000000000u + (uint64_t)end.tv_nsec - (uint64_t)start.tv_nsec;
}

/* With all that ever were in one list the later ones cost more than fifty times as much. */
static void contexts_that_are_gone_cost_no_time(void **state)
{
    enum { TIMED = 2000, BETWEEN = 20000 };
    (void)state;
    uint64_t first = cost_of_contexts(TIMED);
    (void)cost_of_contexts(BETWEEN);
    uint64_t later = cost_of_contexts(TIMED);
    assert_true(later < 10 * first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_have_names_numbers_and_buses),
        cmocka_unit_test(without_a_context),
        cmocka_unit_test(primary_contexts),
        cmocka_unit_test(a_detached_context_ends_with_its_last_user),
        cmocka_unit_test(a_reset_releases_nothing),
        cmocka_unit_test(created_contexts_and_the_stack),
        cmocka_unit_test(each_thread_has_its_own_current_context),
        cmocka_unit_test(destroying_waits_for_work),
        cmocka_unit_test(contexts_that_are_gone_cost_no_time),
        cmocka_unit_test(mappings_outlive_the_context),
        cmocka_unit_test(two_devices),
        cmocka_unit_test(settings_belong_to_their_context),
        cmocka_unit_test(error_texts),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
