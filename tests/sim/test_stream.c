/* The order of work: streams, events, the legacy stream's rules, host functions. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "sim_test.h"

static atomic_uint next_number;

/* Notes when it ran: 1, 2, 3 … over the test. */
static void note(void *at)
{
    *(unsigned *)at = atomic_fetch_add(&next_number, 1) + 1;
}

static CUstream new_stream(unsigned flags)
{
    CUstream stream;
    ok(cuStreamCreate(&stream, flags));
    return stream;
}

static void close_gate_in(CUstream stream, struct gate *gate)
{
    gate->open = gate->reached = false;
    ok(cuLaunchHostFunc(stream, wait_at_gate, gate));
}

static void work_runs_later_and_in_order(void **state)
{
    (void)state;
    struct gate gate;
    unsigned order[50] = {0};
    CUstream stream = new_stream(0);
    atomic_store(&next_number, 0);
    close_gate_in(stream, &gate);
    for (unsigned i = 0; i < 50; i++)
        ok(cuLaunchHostFunc(stream, note, &order[i]));
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    assert_int_equal(atomic_load(&next_number), 0);
    gate.open = true;
    ok(cuStreamSynchronize(stream));
    ok(cuStreamQuery(stream));
    for (unsigned i = 0; i < 50; i++)
        assert_int_equal(order[i], i + 1);
    ok(cuStreamDestroy_v2(stream));
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(stream));
}

static void streams_do_not_wait_for_each_other(void **state)
{
    (void)state;
    struct gate gate;
    unsigned first = 0;
    CUstream a = new_stream(0), b = new_stream(0);
    atomic_store(&next_number, 0);
    close_gate_in(a, &gate);
    ok(cuLaunchHostFunc(b, note, &first));
    ok(cuStreamSynchronize(b));
    assert_int_equal(first, 1);
    gate.open = true;
    ok(cuCtxSynchronize());
    ok(cuStreamDestroy_v2(a));
    ok(cuStreamDestroy_v2(b));
}

static void the_legacy_stream_waits_for_blocking_streams_and_they_for_it(void **state)
{
    (void)state;
    struct gate gate;
    unsigned legacy = 0, after = 0, apart = 0;
    CUstream blocking = new_stream(CU_STREAM_DEFAULT), other = new_stream(CU_STREAM_DEFAULT);
    CUstream free_running = new_stream(CU_STREAM_NON_BLOCKING);
    atomic_store(&next_number, 0);
    close_gate_in(blocking, &gate);
    ok(cuLaunchHostFunc(NULL, note, &legacy));
    ok(cuLaunchHostFunc(other, note, &after));
    ok(cuLaunchHostFunc(free_running, note, &apart));
    ok(cuStreamSynchronize(free_running));
    assert_int_equal(apart, 1);
    sleep_ms(10);
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
    gate.open = true;
    ok(cuStreamSynchronize(other));
    assert_int_equal(legacy, 2);
    assert_int_equal(after, 3);
    close_gate_in(free_running, &gate); /* which the legacy stream does not wait for */
    ok(cuLaunchHostFunc(CU_STREAM_LEGACY, note, &legacy));
    ok(cuStreamSynchronize(CU_STREAM_LEGACY));
    gate.open = true;
    ok(cuCtxSynchronize());
    ok(cuStreamDestroy_v2(blocking));
    ok(cuStreamDestroy_v2(other));
    ok(cuStreamDestroy_v2(free_running));
}

struct per_thread {
    CUcontext context;
    struct gate gate;
    unsigned long long id;
    unsigned ran;
};

static void *use_own_stream(void *argument)
{
    struct per_thread *mine = argument;
    ok(cuCtxSetCurrent(mine->context));
    unsigned long long same;
    ok(cuStreamGetId(CU_STREAM_PER_THREAD, &mine->id));
    ok(cuStreamGetId_ptsz(NULL, &same));
    assert_int_equal(mine->id, same);
    ok(cuLaunchHostFunc_ptsz(NULL, wait_at_gate, &mine->gate));
    ok(cuLaunchHostFunc(CU_STREAM_PER_THREAD, note, &mine->ran));
    if (mine->gate.open)
        ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

static void each_thread_has_a_stream(void **state)
{
    (void)state;
    static struct per_thread held, passes; /* a thread that fails a check leaves its frame */
    pthread_t threads[2];
    atomic_store(&next_number, 0);
    ok(cuCtxGetCurrent(&held.context));
    passes.context = held.context;
    passes.gate.open = true;
    assert_int_equal(pthread_create(&threads[0], NULL, use_own_stream, &held), 0);
    pthread_join(threads[0], NULL); /* its thread is gone, its work is not */
    assert_int_equal(pthread_create(&threads[1], NULL, use_own_stream, &passes), 0);
    pthread_join(threads[1], NULL);
    assert_int_not_equal(held.id, passes.id);
    assert_int_equal(passes.ran, 1);
    unsigned legacy = 0;
    ok(cuLaunchHostFunc(NULL, note, &legacy)); /* the per-thread streams are blocking ones */
    sleep_ms(5);
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    held.gate.open = true;
    ok(cuStreamSynchronize(NULL));
    assert_int_equal(held.ran, 2);
    assert_int_equal(legacy, 3);
}

/* What is kept of a context that has gone is forgotten once. */
static void a_thread_outlives_a_context(void **state)
{
    (void)state;
    CUcontext first, second;
    unsigned long long id, again;
    ok(cuCtxGetCurrent(&first));
    ok(cuStreamGetId(CU_STREAM_PER_THREAD, &id));
    ok(cuCtxCreate_v2(&second, 0, 0));
    ok(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
    assert_int_not_equal(id, again);
    ok(cuCtxDestroy_v2(second));
    ok(cuCtxSetCurrent(first));
    for (int i = 0; i < 3; i++) {
        ok(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
        assert_int_equal(id, again);
        free(calloc(1, 16)); /* memory that was freed is somebody else's */
    }
}

static void events_complete_with_their_work(void **state)
{
    (void)state;
    struct gate gate;
    unsigned a_ran = 0, b_ran = 0;
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent start, event, untimed;
    atomic_store(&next_number, 0);
    ok(cuEventCreate(&start, CU_EVENT_DEFAULT));
    ok(cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC));
    ok(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&untimed, 64));
    ok(cuEventQuery(event)); /* never recorded: nothing to wait for */
    ok(cuEventSynchronize(event));
    ok(cuStreamWaitEvent(b, event, 0));
    float ms;
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, event));
    ok(cuEventRecord(start, a));
    close_gate_in(a, &gate);
    ok(cuLaunchHostFunc(a, note, &a_ran));
    ok(cuEventRecord(event, a));
    ok(cuStreamWaitEvent(b, event, 0));
    ok(cuLaunchHostFunc(b, note, &b_ran));
    expect_error(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    ok(cuEventSynchronize(start));
    expect_error(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, start, event));
    ok(cuEventRecord(untimed, b));
    ok(cuEventDestroy_v2(untimed)); /* before it has come to pass */
    sleep_ms(5);
    assert_int_equal(b_ran, 0);
    gate.open = true;
    ok(cuStreamSynchronize(b));
    assert_int_equal(a_ran, 1);
    assert_int_equal(b_ran, 2);
    ok(cuEventSynchronize(event));
    ok(cuEventElapsedTime(&ms, start, event));
    assert_true(ms >= 5.0f);
    ok(cuEventDestroy_v2(start));
    ok(cuEventDestroy_v2(event));
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
    ok(cuStreamDestroy_v2(a));
    ok(cuStreamDestroy_v2(b));
}

/* A wait is for the record that there was; a later one does not move it. */
static void a_wait_takes_the_record_of_its_time(void **state)
{
    (void)state;
    struct gate gate;
    unsigned ran = 0;
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ok(cuEventRecord(event, a));
    ok(cuStreamWaitEvent(b, event, 0));
    close_gate_in(a, &gate);
    ok(cuEventRecord(event, a));
    ok(cuLaunchHostFunc(b, note, &ran));
    ok(cuStreamSynchronize(b));
    expect_error(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    gate.open = true;
    ok(cuEventSynchronize(event));
    ok(cuEventDestroy_v2(event));
    ok(cuStreamDestroy_v2(a));
    ok(cuStreamDestroy_v2(b));
}

static void events_of_the_whole_context(void **state)
{
    (void)state;
    struct gate one, two;
    unsigned ran = 0;
    CUcontext context;
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_DEFAULT);
    CUstream c = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;
    ok(cuCtxGetCurrent(&context));
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    close_gate_in(a, &one);
    close_gate_in(b, &two);
    ok(cuCtxRecordEvent(context, event));
    ok(cuCtxWaitEvent(context, event));
    ok(cuLaunchHostFunc(c, note, &ran));
    one.open = true;
    ok(cuStreamSynchronize(a));
    expect_error(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(c));
    two.open = true;
    ok(cuEventSynchronize(event));
    ok(cuStreamSynchronize(c));
    ok(cuEventDestroy_v2(event));
    ok(cuStreamDestroy_v2(a));
    ok(cuStreamDestroy_v2(b));
    ok(cuStreamDestroy_v2(c));
}

static CUresult seen_inside[3];

static void call_cuda(void *unused)
{
    (void)unused;
    CUdeviceptr address;
    seen_inside[0] = cuMemAlloc_v2(&address, 512);
    seen_inside[1] = cuCtxSynchronize();
    seen_inside[2] = cuStreamQuery(NULL);
}

static void a_host_function_may_not_call_cuda(void **state)
{
    (void)state;
    ok(cuLaunchHostFunc(NULL, call_cuda, NULL));
    ok(cuStreamSynchronize(NULL));
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(seen_inside[i], CUDA_ERROR_NOT_PERMITTED);
}

static void double_them(void *at)
{
    for (int i = 0; i < 1000; i++)
        ((int *)at)[i] *= 2;
}

static void host_functions_compute_on_device_memory(void **state)
{
    (void)state;
    static int values[1000];
    CUdeviceptr device;
    CUstream stream = new_stream(0);
    for (int i = 0; i < 1000; i++)
        values[i] = i;
    ok(cuMemAlloc_v2(&device, sizeof values));
    ok(cuMemcpyHtoDAsync_v2(device, values, sizeof values, stream));
    for (int i = 0; i < 3; i++)
        ok(cuLaunchHostFunc(stream, double_them, host(device)));
    ok(cuMemcpyDtoHAsync_v2(values, device, sizeof values, stream));
    ok(cuStreamSynchronize(stream));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(values[i], 8 * i);
    ok(cuMemFree_v2(device));
    ok(cuStreamDestroy_v2(stream));
}

static CUstream called_with;

static void call_back(CUstream stream, CUresult status, void *ran)
{
    called_with = stream;
    *(bool *)ran = status == CUDA_SUCCESS;
}

static void callbacks_run_in_stream_order(void **state)
{
    (void)state;
    bool ran = false;
    CUstream stream = new_stream(0);
    ok(cuStreamAddCallback(stream, call_back, &ran, 0));
    ok(cuStreamSynchronize(stream));
    assert_true(ran);
    assert_ptr_equal(called_with, stream);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(stream, NULL, NULL));
    ok(cuStreamDestroy_v2(stream));
}

static void *open_soon(void *gate)
{
    sleep_ms(20);
    ((struct gate *)gate)->open = true;
    return NULL;
}

/* The part of cudaFree that programs rely on: earlier work is finished when it returns. */
static void free_waits_for_the_work_of_the_context(void **state)
{
    (void)state;
    struct gate gate;
    unsigned ran = 0;
    pthread_t opener;
    CUdeviceptr device;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    ok(cuMemAlloc_v2(&device, 4096));
    close_gate_in(stream, &gate);
    ok(cuLaunchHostFunc(stream, note, &ran));
    assert_int_equal(pthread_create(&opener, NULL, open_soon, &gate), 0);
    ok(cuMemFree_v2(device));
    assert_int_not_equal(ran, 0);
    pthread_join(opener, NULL);
    ok(cuStreamDestroy_v2(stream));
}

static void a_full_queue_holds_the_submitter(void **state)
{
    (void)state;
    enum { DEPTH = 64 }; /* as the environment of this test says */
    struct gate gate;
    static unsigned ran[2 * DEPTH];
    pthread_t opener;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    atomic_store(&next_number, 0);
    close_gate_in(stream, &gate);
    for (unsigned i = 0; i < DEPTH - 1; i++)
        ok(cuLaunchHostFunc(stream, note, &ran[i]));
    assert_false(gate.open);
    assert_int_equal(pthread_create(&opener, NULL, open_soon, &gate), 0);
    ok(cuLaunchHostFunc(stream, note, &ran[DEPTH - 1]));
    assert_true(gate.open);
    for (unsigned i = DEPTH; i < 2 * DEPTH; i++)
        ok(cuLaunchHostFunc(stream, note, &ran[i]));
    ok(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < 2 * DEPTH; i++)
        assert_int_equal(ran[i], i + 1);
    pthread_join(opener, NULL);
    ok(cuStreamDestroy_v2(stream));
}

static void a_destroyed_stream_finishes_its_work(void **state)
{
    (void)state;
    struct gate gate;
    unsigned ran = 0;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    atomic_store(&next_number, 0);
    close_gate_in(stream, &gate);
    ok(cuLaunchHostFunc(stream, note, &ran));
    ok(cuStreamDestroy_v2(stream));
    assert_int_equal(ran, 0);
    gate.open = true;
    ok(cuCtxSynchronize());
    assert_int_equal(ran, 1);
}

static void what_a_stream_says_of_itself(void **state)
{
    (void)state;
    CUstream stream;
    CUcontext context, current;
    int priority, least, greatest;
    unsigned flags;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    ok(cuCtxGetStreamPriorityRange(&least, &greatest));
    ok(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 10));
    ok(cuStreamGetPriority(stream, &priority));
    assert_int_equal(priority, greatest);
    ok(cuStreamGetFlags(stream, &flags));
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    ok(cuCtxGetCurrent(&current));
    ok(cuStreamGetCtx(stream, &context));
    assert_ptr_equal(context, current);
    ok(cuStreamIsCapturing(stream, &capture));
    assert_int_equal(capture, CU_STREAM_CAPTURE_STATUS_NONE);
    capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    ok(cuStreamGetCaptureInfo_v2(stream, &capture, NULL, NULL, NULL, NULL));
    assert_int_equal(capture, CU_STREAM_CAPTURE_STATUS_NONE);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ok(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ok(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    ok(cuStreamDestroy_v2(stream));
}

static void kernels_do_nothing_in_stream_order(void **state)
{
    (void)state;
    struct gate gate;
    CUmodule module;
    CUfunction function, same;
    CUstream stream = new_stream(0);
    int value;
    ok(cuModuleLoadData(&module, "no code is read"));
    ok(cuModuleGetFunction(&function, module, "some_kernel"));
    ok(cuModuleGetFunction(&same, module, "some_kernel"));
    assert_ptr_equal(function, same);
    close_gate_in(stream, &gate);
    ok(cuLaunchKernel(function, 128, 1, 1, 256, 1, 1, 0, stream, NULL, NULL));
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    gate.open = true;
    ok(cuStreamSynchronize(stream));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 0, 1, 1, 256, 1, 1, 0, stream, NULL, NULL));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, stream, NULL, NULL));
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 256, 0));
    assert_int_equal(value, 8);
    ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 256, SIZE_MAX - 1023));
    assert_int_equal(value, 0);
    ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, INT32_MAX, 0));
    assert_int_equal(value, 0);
    size_t shared;
    ok(cuOccupancyAvailableDynamicSMemPerBlock(&shared, function, 1000, 256));
    assert_int_equal(shared, 0);
    CUlaunchConfig wide = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1u << 16, .blockDimY = 1u << 16,
        .blockDimZ = 1};
    ok(cuOccupancyMaxActiveClusters(&value, function, &wide));
    assert_int_equal(value, 0);
    ok(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    assert_int_equal(value, 1024);
    ok(cuModuleUnload(module));
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    ok(cuStreamDestroy_v2(stream));
}

/* Many streams, waits and events at random; the order of each stream and of each wait is checked. */
static void many_streams_at_random(void **state)
{
    (void)state;
    enum { STREAMS = 12, STEPS = 3000 };
    CUstream streams[STREAMS];
    static unsigned ran[STEPS];
    static int stream_of[STEPS], waits_for[STEPS];
    int last[STREAMS];
    CUevent event[STREAMS];
    unsigned seed = 7;
    atomic_store(&next_number, 0);
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = new_stream(s % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        ok(cuEventCreate(&event[s], CU_EVENT_DISABLE_TIMING));
        last[s] = -1;
    }
    for (int i = 0; i < STEPS; i++) {
        int s = rand_r(&seed) % STREAMS, other = rand_r(&seed) % STREAMS;
        stream_of[i] = s;
        waits_for[i] = -1;
        if (rand_r(&seed) % 3 == 0) {
            ok(cuEventRecord(event[other], streams[other]));
            ok(cuStreamWaitEvent(streams[s], event[other], 0));
            waits_for[i] = last[other];
        }
        ok(cuLaunchHostFunc(streams[s], note, &ran[i]));
        last[s] = i;
    }
    ok(cuCtxSynchronize());
    for (int s = 0; s < STREAMS; s++)
        last[s] = -1;
    for (int i = 0; i < STEPS; i++) {
        assert_int_not_equal(ran[i], 0);
        if (last[stream_of[i]] >= 0)
            assert_true(ran[last[stream_of[i]]] < ran[i]);
        if (waits_for[i] >= 0)
            assert_true(ran[waits_for[i]] < ran[i]);
        last[stream_of[i]] = i;
    }
    for (int s = 0; s < STREAMS; s++) {
        ok(cuStreamDestroy_v2(streams[s]));
        ok(cuEventDestroy_v2(event[s]));
    }
}

static void count_up(void *counter)
{
    ++*(unsigned *)counter; /* unprotected: the stream's order is what protects it */
}

static CUstream shared_streams[2];
static unsigned shared_counts[2];

static void *work_in_everything(void *context)
{
    enum { ROUNDS = 150 };
    unsigned own = 0, seed = (unsigned)(uintptr_t)&own;
    CUstream mine;
    CUevent event;
    CUdeviceptr address;
    ok(cuCtxSetCurrent(context));
    ok(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned which = (unsigned)rand_r(&seed) % 2;
        unsigned word = i;
        ok(cuMemAlloc_v2(&address, 4096));
        ok(cuMemcpyHtoDAsync_v2(address, &word, sizeof word, mine));
        ok(cuLaunchHostFunc(mine, count_up, host(address)));
        ok(cuLaunchHostFunc(mine, count_up, &own));
        ok(cuLaunchHostFunc(shared_streams[which], count_up, &shared_counts[which]));
        ok(cuEventRecord(event, shared_streams[which]));
        ok(cuStreamWaitEvent(mine, event, 0));
        if (i % 3 == 0)
            ok(cuEventSynchronize(event));
        if (i % 5 == 0)
            ok(cuMemsetD8_v2(address + 8, 1, 100)); /* the legacy stream */
        if (i % 7 == 0)
            ok(cuCtxSynchronize());
        ok(cuMemcpyDtoHAsync_v2(&word, address, sizeof word, mine));
        assert_int_equal(word, i + 1);
        assert_int_equal(own, i + 1);
        ok(cuMemFree_v2(address));
    }
    ok(cuEventDestroy_v2(event));
    ok(cuStreamDestroy_v2(mine));
    return context;
}

static void many_threads_at_once(void **state)
{
    (void)state;
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    CUcontext context;
    ok(cuCtxGetCurrent(&context));
    shared_streams[0] = new_stream(CU_STREAM_DEFAULT);
    shared_streams[1] = new_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work_in_everything, context), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        void *done = NULL;
        pthread_join(threads[i], &done);
        assert_non_null(done);
    }
    ok(cuCtxSynchronize());
    assert_int_equal(shared_counts[0] + shared_counts[1], THREADS * 150);
    ok(cuStreamDestroy_v2(shared_streams[0]));
    ok(cuStreamDestroy_v2(shared_streams[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_runs_later_and_in_order),
        cmocka_unit_test(streams_do_not_wait_for_each_other),
        cmocka_unit_test(the_legacy_stream_waits_for_blocking_streams_and_they_for_it),
        cmocka_unit_test(each_thread_has_a_stream),
        cmocka_unit_test(a_thread_outlives_a_context),
        cmocka_unit_test(events_complete_with_their_work),
        cmocka_unit_test(a_wait_takes_the_record_of_its_time),
        cmocka_unit_test(events_of_the_whole_context),
        cmocka_unit_test(a_host_function_may_not_call_cuda),
        cmocka_unit_test(host_functions_compute_on_device_memory),
        cmocka_unit_test(callbacks_run_in_stream_order),
        cmocka_unit_test(free_waits_for_the_work_of_the_context),
        cmocka_unit_test(a_full_queue_holds_the_submitter),
        cmocka_unit_test(a_destroyed_stream_finishes_its_work),
        cmocka_unit_test(what_a_stream_says_of_itself),
        cmocka_unit_test(kernels_do_nothing_in_stream_order),
        cmocka_unit_test(many_streams_at_random),
        cmocka_unit_test(many_threads_at_once),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
