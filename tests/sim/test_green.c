/* Green contexts: shares of a device, whose work is waited for by themselves or with the primary context. */
#include "sim_test.h"

#include <stdatomic.h>
#include <unistd.h>

static atomic_int gate;

static void wait_for_gate(void *number)
{
    while (gate < (int)(intptr_t)number)
        usleep(200);
}

static CUgreenCtx green_of(unsigned count)
{
    CUdevResource all, share;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned groups = 1;
    ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    ok(cuDevSmResourceSplitByCount(&share, &groups, &all, NULL, 0, count));
    ok(cuDevResourceGenerateDesc(&description, &share, 1));
    ok(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static CUstream stream_of(CUgreenCtx green)
{
    CUstream stream;
    ok(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

static CUcontext context_of(CUgreenCtx green)
{
    CUcontext context;
    ok(cuCtxFromGreenCtx(&context, green));
    return context;
}

static void a_device_is_divided(void **state)
{
    (void)state;
    CUdevResource all, shares[4], rest, nothing = {0};
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned groups = 0;
    ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    expect_error(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_INVALID));
    expect_error(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDevResource(7, &all, CU_DEV_RESOURCE_TYPE_SM));
    ok(cuDevSmResourceSplitByCount(NULL, &groups, &all, NULL, 0, 31));
    assert_int_equal(groups, all.sm.smCount / 32); /* rounded up to the alignment */
    groups = 2;
    ok(cuDevSmResourceSplitByCount(shares, &groups, &all, &rest, 0, 31));
    assert_int_equal(groups, 2);
    assert_int_equal(shares[0].sm.smCount, 32);
    assert_int_equal(shares[1].sm.smCount, 32);
    assert_int_equal(rest.sm.smCount, all.sm.smCount - 64);
    expect_error(CUDA_ERROR_INVALID_VALUE,
        cuDevSmResourceSplitByCount(shares, &groups, &all, &rest, 0, all.sm.smCount + 1));
    groups = 0;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuDevSmResourceSplitByCount(shares, &groups, &all, &rest, 0, 8));
    expect_error(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDevResourceGenerateDesc(&description, &nothing, 1));
    ok(cuDevResourceGenerateDesc(&description, shares, 2));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, description, 0, 0));
    ok(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    ok(cuGreenCtxGetDevResource(green, &rest, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(rest.sm.smCount, 64);
    ok(cuCtxGetDevResource(NULL, &rest, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(rest.sm.smCount, all.sm.smCount);
    ok(cuGreenCtxDestroy(green));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(green));
}

static void streams_say_whose_they_are(void **state)
{
    (void)state;
    CUgreenCtx green = green_of(8), found;
    CUcontext primary, context;
    CUstream stream = stream_of(green), refused;
    CUdevice device;
    ok(cuCtxGetCurrent(&primary));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&refused, green, CU_STREAM_DEFAULT, 0));
    ok(cuStreamGetCtx(stream, &context));
    assert_ptr_equal(context, context_of(green));
    ok(cuStreamGetCtx_v2(stream, &context, &found));
    assert_ptr_equal(context, primary);
    assert_ptr_equal(found, green);
    ok(cuStreamGetGreenCtx(stream, &found));
    assert_ptr_equal(found, green);
    ok(cuStreamGetCtx_v2(NULL, &context, &found));
    assert_ptr_equal(found, NULL);
    ok(cuCtxPushCurrent_v2(context_of(green)));
    ok(cuCtxGetDevice(&device));
    ok(cuStreamGetCtx_v2(NULL, &context, &found));
    assert_ptr_equal(found, green);
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuStreamGetCtx_v2(CU_STREAM_PER_THREAD, &context, &found));
    ok(cuCtxPopCurrent_v2(NULL));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(context_of(green)));
    ok(cuStreamDestroy_v2(stream));
    ok(cuGreenCtxDestroy(green));
}

/* A wait for the green context is not for the primary one's work; a wait for that is for both. */
static void whose_work_is_waited_for(void **state)
{
    (void)state;
    CUgreenCtx green = green_of(8);
    CUstream stream = stream_of(green), own;
    CUevent event, over_all;
    int first = gate + 1;
    ok(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ok(cuEventCreate(&over_all, CU_EVENT_DISABLE_TIMING));
    ok(cuLaunchHostFunc(own, wait_for_gate, (void *)(intptr_t)first));
    ok(cuGreenCtxRecordEvent(green, event));
    ok(cuEventSynchronize(event)); /* the green one has nothing to do */
    ok(cuCtxPushCurrent_v2(context_of(green)));
    ok(cuCtxSynchronize());
    ok(cuCtxPopCurrent_v2(NULL));
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(own));
    gate = first;
    ok(cuCtxSynchronize());

    ok(cuLaunchHostFunc(stream, wait_for_gate, (void *)(intptr_t)(first + 1)));
    ok(cuGreenCtxRecordEvent(green, event));
    ok(cuCtxRecordEvent(NULL, over_all));
    ok(cuStreamSynchronize(own));
    expect_error(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    expect_error(CUDA_ERROR_NOT_READY, cuEventQuery(over_all)); /* the primary context stands for it */
    ok(cuCtxWaitEvent(NULL, event));
    ok(cuLaunchHostFunc(own, wait_for_gate, NULL));
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(own));
    gate = first + 1;
    ok(cuCtxSynchronize());
    ok(cuStreamQuery(stream));
    ok(cuEventQuery(over_all));

    ok(cuLaunchHostFunc(own, wait_for_gate, (void *)(intptr_t)(first + 2)));
    ok(cuEventRecord(event, own));
    ok(cuGreenCtxWaitEvent(green, event));
    ok(cuLaunchHostFunc(stream, wait_for_gate, NULL));
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    gate = first + 2;
    ok(cuStreamSynchronize(stream));
    ok(cuEventDestroy_v2(event));
    ok(cuEventDestroy_v2(over_all));
    ok(cuStreamDestroy_v2(own));
    ok(cuStreamDestroy_v2(stream));
    ok(cuGreenCtxDestroy(green));
}

/* Memory is the primary context's: it outlives the green one, and its free waits for both. */
static void memory_is_the_primary_contexts(void **state)
{
    (void)state;
    CUgreenCtx green = green_of(8);
    CUstream stream = stream_of(green);
    CUdeviceptr memory;
    CUcontext primary, owner;
    CUevent event;
    ok(cuCtxGetCurrent(&primary));
    ok(cuCtxPushCurrent_v2(context_of(green)));
    ok(cuMemAlloc_v2(&memory, 4096));
    ok(cuCtxPopCurrent_v2(NULL));
    ok(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    assert_ptr_equal(owner, primary);
    ok(cuMemsetD8Async(memory, 1, 4096, stream));
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ok(cuEventRecord(event, stream));
    ok(cuEventSynchronize(event));
    ok(cuGreenCtxDestroy(green)); /* before its stream */
    expect_error(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemsetD8Async(memory, 1, 4096, stream));
    expect_error(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy_v2(stream));
    ok(cuMemsetD8_v2(memory, 2, 4096));
    ok(cuMemFree_v2(memory));
    ok(cuEventDestroy_v2(event));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_divided),
        cmocka_unit_test(streams_say_whose_they_are),
        cmocka_unit_test(whose_work_is_waited_for),
        cmocka_unit_test(memory_is_the_primary_contexts),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
