/* Events over a context beside captures and green contexts; managed memory beside memory that was freed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe.h"

extern char **environ;

struct capture {
    CUstream stream;
    CUstreamCaptureMode mode;
    CUresult begun, recorded, ended;
    bool elsewhere; /* the event is recorded by another thread than the one that captures */
};

static void *event_record_over(void *data)
{
    struct capture *capture = data;
    CUevent event;
    capture->recorded = probe.cu.cuCtxSetCurrent(probe.context);
    if (capture->recorded == CUDA_SUCCESS)
        capture->recorded = probe.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (capture->recorded != CUDA_SUCCESS)
        return NULL;
    capture->recorded = probe.cu.cuCtxRecordEvent(probe.context, event);
    (void)probe.cu.cuEventDestroy_v2(event);
    return NULL;
}

static bool beside_capture(CUstreamCaptureMode mode, bool elsewhere)
{
    static const char *const names[] = {"global", "thread-local", "relaxed"};
    struct capture capture = {.mode = mode, .elsewhere = elsewhere};
    pthread_t thread;
    CUgraph graph = NULL;
    CUdeviceptr words;
    NEED(probe.cu.cuMemAlloc_v2(&words, 4096));
    NEED(probe.cu.cuStreamCreate(&capture.stream, CU_STREAM_NON_BLOCKING));
    NEED(probe.cu.cuStreamBeginCapture_v2(capture.stream, mode));
    NEED(probe.cu.cuMemsetD8Async(words, 1, 4096, capture.stream));
    if (!elsewhere)
        event_record_over(&capture);
    else if (pthread_create(&thread, NULL, event_record_over, &capture) == 0)
        pthread_join(thread, NULL);
    capture.ended = probe.cu.cuStreamEndCapture(capture.stream, &graph);
    probe_say("'capture': '%s', 'recorded_by': '%s', 'record': %d, 'end_of_capture': %d", names[mode],
        elsewhere ? "another thread" : "the same thread", (int)capture.recorded, (int)capture.ended);
    if (capture.ended == CUDA_SUCCESS && graph)
        NEED(probe.cu.cuGraphDestroy(graph));
    NEED(probe.cu.cuStreamDestroy_v2(capture.stream));
    NEED(probe.cu.cuMemFree_v2(words));
    return true;
}

/* An event over the primary context: is it pending while only a green context has work? */
static bool over_green(void)
{
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUstream stream;
    CUevent event;
    unsigned groups = 1;
    HAVE(cuGreenCtxCreate);
    if (!probe.kernels.spin)
        return probe_skip("no kernels: neither nvcc nor a driver that compiles");
    CUresult result = probe.cu.cuDeviceGetDevResource(probe.device, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (result == CUDA_SUCCESS)
        result = probe.cu.cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 8);
    if (result == CUDA_SUCCESS)
        result = probe.cu.cuDevResourceGenerateDesc(&description, &part, 1);
    if (result == CUDA_SUCCESS)
        result = probe.cu.cuGreenCtxCreate(&green, description, probe.device, CU_GREEN_CTX_DEFAULT_STREAM);
    if (result != CUDA_SUCCESS) {
        probe_say("'green': 'not to be had', 'code': %d", (int)result);
        return true;
    }
    NEED(probe.cu.cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    NEED(probe.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(probe_busy(stream, 50000));
    CUresult recorded = probe.cu.cuCtxRecordEvent(probe.context, event);
    CUresult asked = recorded == CUDA_SUCCESS ? probe.cu.cuEventQuery(event) : recorded;
    CUresult working = probe.cu.cuStreamQuery(stream);
    probe_say("'green': 'made', 'record': %d, 'query': %d, 'green_stream': %d", (int)recorded, (int)asked, (int)working);
    NEED(probe.cu.cuStreamSynchronize(stream));
    NEED(probe.cu.cuStreamDestroy_v2(stream));
    NEED(probe.cu.cuEventDestroy_v2(event));
    NEED(probe.cu.cuGreenCtxDestroy(green));
    return true;
}

bool probe_context_event(void)
{
    HAVE(cuCtxRecordEvent);
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++)
        for (int elsewhere = 0; elsewhere < 2; elsewhere++)
            if (!beside_capture((CUstreamCaptureMode)mode, elsewhere))
                return false;
    return over_green();
}

/* Bytes free by the driver's word to a process without the library, which may count what it keeps as free. */
static size_t free_for_others(void)
{
    char *environment[512];
    int count = 0;
    struct probe_child child;
    uint64_t bytes = 0;
    for (char **at = environ; *at && count < 511; at++)
        if (strncmp(*at, "LD_PRELOAD=", 11) != 0)
            environment[count++] = *at;
    environment[count] = NULL;
    if (!probe_child_start("--free", "", environment, &child))
        return 0;
    probe_child_go(&child);
    return probe_child_end(&child, &bytes) ? (size_t)bytes : 0;
}

int probe_role_free(const char *unused)
{
    (void)unused;
    if (isatty(STDIN_FILENO) == 0)
        probe_ready();
    probe_tell(probe_free_bytes());
    return 0;
}

/* Takes memory until as much is free as asked for, says so, and keeps it until its input ends. */
int probe_role_hold(const char *text)
{
    size_t leave = strtoull(text, NULL, 10), most = 0;
    CUdeviceptr address;
    for (size_t piece = GIB; piece >= 2 * MIB; piece /= 2) {
        while (probe_free_bytes() > leave + piece && probe.cu.cuMemAlloc_v2(&address, piece) == CUDA_SUCCESS)
            most += piece;
    }
    probe_ready();
    probe_tell(most);
    return 0;
}

/* How long a set of all bytes takes, in ns, to its end. */
static CUresult time_set(CUdeviceptr address, size_t bytes, uint64_t *ret_ns)
{
    uint64_t began = probe_real_ns();
    CUresult result = probe.cu.cuMemsetD8_v2(address, 7, bytes);
    if (result == CUDA_SUCCESS)
        result = probe.cu.cuCtxSynchronize();
    *ret_ns = probe_real_ns() - began;
    return result;
}

/* Never more than is free by the driver's word to others: what is beyond may hang a GPU. */
bool probe_managed(void)
{
    CUdeviceptr idle, managed;
    uint64_t first = 0, second = 0, third = 0;
    int location = -2;
    size_t bytes = probe.quick ? 64 * MIB : GIB;
    HAVE(cuMemAllocManaged);
    if (probe_free_bytes() < 4 * bytes)
        return probe_skip("%zu MiB free, %zu wanted", probe_free_bytes() / MIB, 4 * bytes / MIB);
    NEED(probe.cu.cuMemAlloc_v2(&idle, bytes)); /* with the library its pages stay with this process */
    NEED(probe.cu.cuMemFree_v2(idle));
    size_t before = free_for_others();
    if (before < bytes + bytes / 2)
        return probe_skip("%zu MiB free by the driver's word, %zu wanted", before / MIB, (bytes + bytes / 2) / MIB);
    NEED(probe.cu.cuMemAllocManaged(&managed, bytes, CU_MEM_ATTACH_GLOBAL));
    size_t made = free_for_others(), own = probe_free_bytes();
    NEED(time_set(managed, bytes, &first));
    NEED(time_set(managed, bytes, &second));
    NEED(time_set(managed, bytes, &third));
    CUresult prefetched = probe.cu.cuMemPrefetchAsync
                              ? probe.cu.cuMemPrefetchAsync(managed, bytes, probe.device, probe.load)
                              : CUDA_ERROR_NOT_SUPPORTED;
    NEED(probe.cu.cuStreamSynchronize(probe.load));
    int asked = probe.cu.cuMemRangeGetAttribute
                    ? (int)probe.cu.cuMemRangeGetAttribute(&location, sizeof location,
                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, managed, bytes)
                    : -1;
    size_t after = free_for_others(), own_after = probe_free_bytes();
    probe_say("'on_device': %s", own > own_after && own - own_after >= bytes / 2 ? "true" : "false");
    probe_say("'bytes': %zu, 'free_before': %zu, 'free_when_made': %zu, 'free_when_set': %zu, 'first_set_ns': %llu, "
              "'second_set_ns': %llu, 'third_set_ns': %llu, 'prefetch': %d, 'location_code': %d, 'location': %d",
        bytes, before, made, after, (unsigned long long)first, (unsigned long long)second, (unsigned long long)third,
        (int)prefetched, asked, location);
    NEED(probe.cu.cuMemFree_v2(managed));
    return true;
}
