#include "cudart_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_int steps[8], clock_hand;
static atomic_bool asked;

static void note(void *data)
{
    atomic_store((atomic_int *)data, atomic_fetch_add(&clock_hand, 1) + 1);
}

static void slow_note(void *data)
{
    usleep(20000);
    note(data);
}

/* Not before the test has seen that it is pending, or has failed to. */
static void asked_note(void *data)
{
    for (int i = 0; i < 100000 && !asked; i++)
        usleep(100);
    note(data);
}

static void callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    if (status == CUDA_SUCCESS)
        note(data);
}

static void start(void)
{
    atomic_store(&clock_hand, 0);
    asked = false;
    for (int i = 0; i < 8; i++)
        atomic_store(&steps[i], 0);
}

static void work_runs_in_order(void **state)
{
    (void)state;
    start();
    CUstream stream;
    ok(cudaStreamCreateWithFlags(&stream, CU_STREAM_NON_BLOCKING));
    ok(cudaLaunchHostFunc(stream, asked_note, &steps[0]));
    ok(cudaLaunchHostFunc(stream, note, &steps[1]));
    ok(cudaStreamAddCallback(stream, callback, &steps[2], 0));
    expect_error(cudaErrorNotReady, cudaStreamQuery(stream));
    expect_error(cudaErrorNotReady, cudaGetLastError());
    asked = true;
    ok(cudaStreamSynchronize(stream));
    assert_int_equal(steps[0], 1);
    assert_int_equal(steps[1], 2);
    assert_int_equal(steps[2], 3);
    ok(cudaStreamQuery(stream));
    ok(cudaStreamDestroy(stream));
}

static void events_order_streams(void **state)
{
    (void)state;
    start();
    CUstream a, b;
    CUevent event;
    ok(cudaStreamCreateWithFlags(&a, CU_STREAM_NON_BLOCKING));
    ok(cudaStreamCreateWithPriority(&b, CU_STREAM_NON_BLOCKING, 0));
    ok(cudaEventCreateWithFlags(&event, CU_EVENT_DISABLE_TIMING));
    ok(cudaEventQuery(event));
    ok(cudaLaunchHostFunc(a, asked_note, &steps[0]));
    ok(cudaEventRecord(event, a));
    ok(cudaStreamWaitEvent(b, event, 0));
    ok(cudaLaunchHostFunc(b, note, &steps[1]));
    expect_error(cudaErrorNotReady, cudaEventQuery(event));
    asked = true;
    ok(cudaEventSynchronize(event));
    ok(cudaDeviceSynchronize());
    assert_int_equal(steps[0], 1);
    assert_int_equal(steps[1], 2);
    ok(cudaEventDestroy(event));
    ok(cudaStreamDestroy(a));
    ok(cudaStreamDestroy(b));
    cudaGetLastError();
}

static void events_measure(void **state)
{
    (void)state;
    start();
    CUevent from, to;
    float ms = -1;
    ok(cudaEventCreate(&from));
    ok(cudaEventCreate(&to));
    ok(cudaEventRecord(from, NULL));
    ok(cudaLaunchHostFunc(NULL, slow_note, &steps[0]));
    ok(cudaEventRecordWithFlags(to, NULL, 0));
    ok(cudaEventSynchronize(to));
    ok(cudaEventElapsedTime(&ms, from, to));
    assert_true(ms >= 0);
    ok(cudaEventDestroy(from));
    ok(cudaEventDestroy(to));
}

/* Stream 0 of the names with a suffix is the thread's own: it does not wait for another thread's. */
static void suffix_means_own_stream(void **state)
{
    (void)state;
    start();
    CUstream other;
    ok(cudaStreamCreate(&other));
    ok(cudaLaunchHostFunc_ptsz(NULL, slow_note, &steps[0]));
    ok(cudaStreamSynchronize(CU_STREAM_PER_THREAD));
    assert_int_equal(steps[0], 1);
    unsigned flags = 99;
    unsigned long long legacy = 0, own = 0, same = 0;
    ok(cudaStreamGetFlags(other, &flags));
    assert_int_equal(flags, 0);
    ok(cudaStreamGetId(NULL, &legacy));
    ok(cudaStreamGetId_ptsz(NULL, &own));
    ok(cudaStreamGetId(CU_STREAM_PER_THREAD, &same));
    assert_true(legacy != own);
    assert_true(own == same);
    char *p = NULL;
    unsigned char byte = 0;
    ok(cudaMallocAsync_ptsz((void **)&p, 4096, NULL));
    ok(cudaMemsetAsync_ptsz(p, 3, 4096, NULL));
    ok(cudaMemcpy_ptds(&byte, p, 1, COPY_DEVICE_TO_HOST));
    assert_int_equal(byte, 3);
    ok(cudaFreeAsync_ptsz(p, NULL));
    ok(cudaStreamDestroy(other));
}

static void nothing_captures_yet(void **state)
{
    (void)state;
    CUstream stream;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    ok(cudaStreamCreate(&stream));
    ok(cudaStreamIsCapturing(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    int least = -9, greatest = 9, priority = 99, device = -1;
    ok(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    assert_true(least >= greatest);
    ok(cudaStreamGetPriority(stream, &priority));
    assert_true(priority <= least && priority >= greatest);
    ok(cudaStreamGetDevice(stream, &device));
    assert_int_equal(device, 0);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ok(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ok(cudaThreadExchangeStreamCaptureMode(&mode));
    ok(cudaStreamDestroy(stream));
    expect_error(cudaErrorInvalidResourceHandle, cudaStreamDestroy(NULL));
    cudaGetLastError();
}

static void *elsewhere(void *ret)
{
    int device = -1;
    char *p = NULL;
    cudaError_t *errors = ret;
    errors[0] = cudaPeekAtLastError();
    errors[1] = cudaGetDevice(&device);
    errors[2] = cudaMalloc((void **)&p, 100);
    errors[3] = cudaFree(p);
    errors[4] = device;
    errors[5] = cudaMalloc(NULL, 1);
    return NULL;
}

/* The last error and the device belong to a thread. */
static void threads_are_apart(void **state)
{
    (void)state;
    pthread_t thread;
    cudaError_t errors[6];
    ok(cudaSetDevice(1));
    expect_error(cudaErrorInvalidDevice, cudaSetDevice(99));
    assert_int_equal(pthread_create(&thread, NULL, elsewhere, errors), 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < 4; i++)
        ok(errors[i]);
    assert_int_equal(errors[4], 0);
    assert_int_equal(errors[5], cudaErrorInvalidValue);
    expect_error(cudaErrorInvalidDevice, cudaGetLastError());
    ok(cudaSetDevice(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_runs_in_order), cmocka_unit_test(events_order_streams),
        cmocka_unit_test(events_measure),     cmocka_unit_test(suffix_means_own_stream),
        cmocka_unit_test(nothing_captures_yet),     cmocka_unit_test(threads_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
