/* Legacy handles of memory between two processes on one simulated machine: the same bytes. Handles of events: the last
   record, whoever made it. */
#include "sim_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 3 * 4096 + 100 };

static void a_handle_is_not_for_its_own_process(void **state)
{
    (void)state;
    CUdeviceptr memory, opened;
    CUipcMemHandle handle, other, garbage = {{0}};
    ok(cuMemAlloc_v2(&memory, BYTES));
    ok(cuIpcGetMemHandle(&handle, memory));
    expect_error(CUDA_ERROR_INVALID_CONTEXT,
        cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&opened, handle, 2));
    expect_error(CUDA_ERROR_INVALID_HANDLE,
        cuIpcOpenMemHandle_v2(&opened, garbage, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(NULL, memory));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, 4096));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
    ok(cuMemFree_v2(memory));
    ok(cuMemAlloc_v2(&memory, BYTES)); /* the same address, another handle */
    ok(cuIpcGetMemHandle(&other, memory));
    assert_memory_not_equal(&handle, &other, sizeof handle);
    ok(cuMemFree_v2(memory));
}

static void expect_refused(CUdeviceptr address)
{
    CUipcMemHandle handle;
    int legacy = 1;
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, address));
    ok(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    assert_false(legacy);
}

/* Memory that is mapped, that comes from a pool, that is managed or the host's. */
static void only_cuMemAlloc_s_memory_has_handles(void **state)
{
    (void)state;
    CUdeviceptr mapped, ordered, managed;
    CUmemGenericAllocationHandle page;
    void *host;
    const CUmemAllocationProp prop = on_device(0);
    const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ok(cuMemAddressReserve(&mapped, PAGE, 0, 0, 0));
    ok(cuMemCreate(&page, PAGE, &prop, 0));
    ok(cuMemMap(mapped, PAGE, 0, page, 0));
    ok(cuMemSetAccess(mapped, PAGE, &access, 1));
    ok(cuMemAllocAsync(&ordered, BYTES, NULL));
    ok(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    ok(cuMemAllocHost_v2(&host, BYTES));
    expect_refused(mapped);
    expect_refused(ordered);
    expect_refused(managed);
    expect_refused((CUdeviceptr)(uintptr_t)host);
    ok(cuMemFreeHost(host));
    ok(cuMemFree_v2(managed));
    ok(cuMemFreeAsync(ordered, NULL));
    ok(cuMemUnmap(mapped, PAGE));
    ok(cuMemRelease(page));
    ok(cuMemAddressFree(mapped, PAGE));
}

/* Where there are no such handles at all: WSL 2 is like that. */
static int refuse_all(void)
{
    CUdeviceptr memory, opened;
    CUevent event;
    CUipcMemHandle handle = {{0}};
    CUipcEventHandle event_handle = {{0}};
    int supported = 1, legacy = 1;
    use_device_0(NULL);
    ok(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
    ok(cuMemAlloc_v2(&memory, BYTES));
    ok(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
    assert_false(supported || legacy);
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetMemHandle(&handle, memory));
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuIpcOpenMemHandle_v2(&opened, handle, 0));
    ok(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetEventHandle(&event_handle, event));
    expect_error(CUDA_ERROR_NOT_SUPPORTED, cuIpcOpenEventHandle(&event, event_handle));
    ok(cuMemFree_v2(memory));
    return 0;
}

/* Exports, says so, waits for the answer and looks for what the other process has written. */
static int export_to(int channel)
{
    CUdeviceptr first, memory;
    CUipcMemHandle handle;
    char text[32], byte = 0;
    ok(cuMemAlloc_v2(&first, 700)); /* so that the block begins within a page */
    ok(cuMemAlloc_v2(&memory, BYTES));
    ok(cuMemcpyHtoD_v2(memory, "from the exporter", 18));
    ok(cuIpcGetMemHandle(&handle, memory + 700)); /* of all of it, and opened at its beginning */
    if (write(channel, &handle, sizeof handle) != sizeof handle || read(channel, &byte, 1) != 1)
        return 3;
    ok(cuMemcpyDtoH_v2(text, memory + BYTES - 18, 18));
    ok(cuMemFree_v2(memory));
    return strcmp(text, "from the importer") == 0 ? 0 : 4;
}

static int import_from(int channel)
{
    CUdeviceptr memory, again, base;
    CUipcMemHandle handle;
    char text[32];
    size_t size, before, after;
    if (read(channel, &handle, sizeof handle) != sizeof handle)
        return 5;
    ok(cuMemGetInfo_v2(&before, NULL));
    ok(cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ok(cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ok(cuMemGetInfo_v2(&after, NULL));
    assert_int_equal(again, memory);
    assert_int_equal(before, after); /* the exporter's process has it */
    ok(cuMemGetAddressRange_v2(&base, &size, memory + 10));
    assert_int_equal(base, memory);
    assert_int_equal(size, BYTES);
    ok(cuMemcpyDtoH_v2(text, memory, 18));
    assert_string_equal(text, "from the exporter");
    ok(cuMemcpyHtoD_v2(memory + BYTES - 18, "from the importer", 18));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(text, memory + BYTES - 4, 18));
    ok(cuIpcCloseMemHandle(memory));
    ok(cuMemcpyDtoH_v2(text, memory, 18)); /* still open once */
    ok(cuIpcCloseMemHandle(memory));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
    return write(channel, "", 1) == 1 ? 0 : 6;
}

static const unsigned shared_event = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;

static void event_handles_are_refused_where_the_reference_says(void **state)
{
    (void)state;
    CUevent event, plain, opened;
    CUipcEventHandle handle, garbage = {{0}};
    float ms;
    int supported = 0;
    ok(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
    assert_true(supported);
    expect_error(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    ok(cuEventCreate(&event, shared_event));
    ok(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    ok(cuIpcGetEventHandle(&handle, event));
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&handle, plain));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuIpcGetEventHandle(NULL, event));
    expect_error(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&opened, handle));
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenEventHandle(&opened, garbage));
    ok(cuEventQuery(event));
    ok(cuEventRecord(event, NULL));
    ok(cuEventSynchronize(event));
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, event, event));
    ok(cuEventDestroy_v2(event));
    ok(cuEventCreate(&event, shared_event)); /* in the place of the other: it was never recorded */
    ok(cuEventQuery(event));
    ok(cuEventDestroy_v2(event));
    ok(cuEventDestroy_v2(plain));
}

/* One says that it is as far, the other waits for that. */
static bool tell(int channel)
{
    return write(channel, "", 1) == 1;
}

static bool hear(int channel)
{
    char byte;
    return read(channel, &byte, 1) == 1;
}

static void give(int channel, const void *bytes, size_t size)
{
    assert_int_equal(write(channel, bytes, size), size);
}

static void receive(int channel, void *bytes, size_t size)
{
    assert_int_equal(read(channel, bytes, size), size);
}

/* A record that is still to be reached when the other process sees it: made by a stream, then by a graph. */
static int record_for(int channel)
{
    struct gate gate = {0};
    CUstream stream;
    CUevent event;
    CUdeviceptr memory;
    CUipcEventHandle event_handle;
    CUipcMemHandle handle;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuEventCreate(&event, shared_event));
    ok(cuMemAlloc_v2(&memory, BYTES));
    ok(cuIpcGetEventHandle(&event_handle, event));
    ok(cuIpcGetMemHandle(&handle, memory));
    give(channel, &event_handle, sizeof event_handle);
    give(channel, &handle, sizeof handle);
    ok(cuGraphCreate(&graph, 0));
    ok(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
    ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (unsigned round = 1; round <= 2; round++) {
        gate = (struct gate){0};
        ok(cuLaunchHostFunc(stream, wait_at_gate, &gate));
        ok(cuMemsetD8Async(memory, (unsigned char)round, BYTES, stream));
        ok(round == 1 ? cuEventRecord(event, stream) : cuGraphLaunch(exec, stream));
        assert_true(tell(channel) && hear(channel)); /* it waits */
        gate.open = true;
        assert_true(hear(channel));
        ok(cuEventQuery(event));
    }
    ok(cuEventSynchronize(event));
    ok(cuEventQuery(event));
    CUdeviceptr own;
    ok(cuMemAlloc_v2(&own, 16));
    assert_true(tell(channel) && hear(channel));
    expect_error(CUDA_ERROR_NOT_READY, cuEventQuery(event)); /* recorded elsewhere, behind a gate */
    ok(cuStreamWaitEvent(stream, event, 0));
    ok(cuMemsetD8Async(own, 1, 16, stream));
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    assert_true(tell(channel));
    ok(cuEventSynchronize(event));
    ok(cuStreamSynchronize(stream));
    assert_true(tell(channel) && hear(channel));
    expect_error(CUDA_ERROR_NOT_READY, cuEventQuery(event)); /* behind one that is never opened */
    CUcontext context;
    ok(cuCtxGetCurrent(&context));
    ok(cuCtxWaitEvent(context, event));
    ok(cuMemsetD8Async(own, 2, 16, stream));
    expect_error(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    assert_true(tell(channel));
    ok(cuStreamSynchronize(stream)); /* once that process has ended */
    ok(cuEventQuery(event));
    return 0;
}

static int wait_for_records(int channel)
{
    static struct gate gate, shut;
    CUstream stream;
    CUevent event;
    CUdeviceptr memory;
    CUipcEventHandle event_handle;
    CUipcMemHandle handle;
    unsigned char *byte; /* pinned: a copy elsewhere would be waited for at once */
    ok(cuMemAllocHost_v2((void **)&byte, 1));
    receive(channel, &event_handle, sizeof event_handle);
    receive(channel, &handle, sizeof handle);
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuIpcOpenEventHandle(&event, event_handle));
    ok(cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    expect_error(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&event_handle, event));
    for (unsigned round = 1; round <= 2; round++) {
        assert_true(hear(channel));
        expect_error(CUDA_ERROR_NOT_READY, cuEventQuery(event));
        ok(cuStreamWaitEvent(stream, event, 0));
        ok(cuMemcpyDtoHAsync_v2(byte, memory + BYTES - 1, 1, stream));
        assert_true(tell(channel));
        ok(cuStreamSynchronize(stream));
        assert_int_equal(*byte, round);
        ok(cuEventQuery(event));
        assert_true(tell(channel));
    }
    assert_true(hear(channel));
    ok(cuLaunchHostFunc(stream, wait_at_gate, &gate));
    ok(cuEventRecord(event, stream));
    assert_true(tell(channel) && hear(channel));
    gate.open = true;
    assert_true(hear(channel));
    ok(cuLaunchHostFunc(stream, wait_at_gate, &shut));
    ok(cuEventRecord(event, stream));
    assert_true(tell(channel) && hear(channel));
    _exit(0);
}

/* Fresh processes: the one that runs the tests has called CUDA, so its children can't. */
static int pair_of(int (*child_side)(int channel), int (*own_side)(int channel))
{
    int channel[2], result;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0)
        return 2;
    pid_t child = fork();
    use_device_0(NULL);
    if (child == 0)
        _exit(child_side(channel[0]));
    int own = own_side(channel[1]);
    return waitpid(child, &result, 0) == child && result == 0 ? own : 7;
}

static int exchange_events(void)
{
    return pair_of(wait_for_records, record_for);
}

static int exchange(void)
{
    return pair_of(export_to, import_from);
}

static void run_pair(const char *what)
{
    int result;
    pid_t child = fork();
    if (child == 0)
        execl("/proc/self/exe", "test_ipc", what, NULL);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

static void a_machine_may_have_none(void **state)
{
    (void)state;
    assert_int_equal(setenv("SEGALLOC_SIM", "256MiB,no-ipc", 1), 0);
    run_pair("--none");
    assert_int_equal(setenv("SEGALLOC_SIM", "256MiB", 1), 0);
}

static void two_processes_see_the_same_bytes(void **state)
{
    (void)state;
    run_pair("--exchange");
}

static void two_processes_wait_for_each_others_records(void **state)
{
    (void)state;
    run_pair("--events");
}

int main(int count, char **argument)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_is_not_for_its_own_process),
        cmocka_unit_test(only_cuMemAlloc_s_memory_has_handles),
        cmocka_unit_test(a_machine_may_have_none),
        cmocka_unit_test(two_processes_see_the_same_bytes),
        cmocka_unit_test(event_handles_are_refused_where_the_reference_says),
        cmocka_unit_test(two_processes_wait_for_each_others_records),
    };
    if (count == 2 && strcmp(argument[1], "--none") == 0)
        return refuse_all();
    if (count == 2 && strcmp(argument[1], "--exchange") == 0)
        return exchange();
    if (count == 2 && strcmp(argument[1], "--events") == 0)
        return exchange_events();
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
