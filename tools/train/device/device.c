#include "device/device.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Arguments of queued kernels. A slot is used again when the event recorded at the end of its quarter has passed, which
   also bounds how far the host runs ahead. */
enum { RING_SLOTS = 8192, RING_QUARTERS = 4, QUARTER_SLOTS = RING_SLOTS / RING_QUARTERS };

struct launch {
    void (*run)(const struct kernel_args *args);
    struct kernel_args args;
};

struct launch_ring {
    uint64_t next;
    void *passed[RING_QUARTERS];
    bool recorded[RING_QUARTERS];
    struct launch slots[RING_SLOTS];
};

enum { DRY_LAUNCHES = 8 }; /* of which one reaches the stream */

static const size_t MOST_LIVE = (size_t)1 << 62; /* where counting ends */

static void *const STREAM = NULL; /* the legacy default stream, as PyTorch's */

static bool device_check(struct device *device, int rc, const char *call, size_t bytes)
{
    if (rc == CUDA_SUCCESS_VALUE)
        return true;
    if (device->state != DEVICE_OK)
        return false;
    if (rc == CUDA_ERROR_OUT_OF_MEMORY && !strcmp(call, "cudaMallocHost")) {
        device->state = DEVICE_BROKEN;
        snprintf(device->error, sizeof device->error, "the host has no %zu bytes of page-locked memory left; --offload "
                 "none needs none", bytes);
    } else if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
        device->state = DEVICE_OUT_OF_MEMORY;
        device->refused = bytes;
        snprintf(device->error, sizeof device->error, "out of device memory: %zu bytes asked for with %zu in tensors",
                 bytes, device->live);
    } else {
        device->state = DEVICE_BROKEN;
        snprintf(device->error, sizeof device->error, "%s failed: %s (%d)", call, device->rt->cudaGetErrorString(rc),
                 rc);
    }
    if (device->rt)
        device->rt->cudaGetLastError();
    return false;
}

/* The kernel is asked to read a byte, for it answers with an error where the process would get a signal. */
bool device_host_reaches(const struct cuda_rt *rt)
{
    int ends[2];
    void *memory = NULL;
    bool reaches = true; /* where nothing can be found out, the first allocation fails */
    if (!rt->cudaMalloc(&memory, TENSOR_ALIGNMENT) && !pipe(ends)) {
        reaches = write(ends[1], memory, 1) == 1 || errno != EFAULT;
        close(ends[0]);
        close(ends[1]);
    }
    if (memory)
        rt->cudaFree(memory);
    rt->cudaGetLastError();
    return reaches;
}

void device_open(struct device *device, const struct cuda_rt *rt, struct allocator *alloc,
                 const struct arithmetic *arithmetic, int threads)
{
    memset(device, 0, sizeof *device);
    device->rt = rt;
    device->alloc = alloc;
    device->arithmetic = arithmetic;
    device->label = BUDGET_activations;
    if (!rt)
        return;
    device->ring = calloc(1, sizeof *device->ring);
    if (!device->ring)
        abort();
    for (int i = 0; i < RING_QUARTERS; i++)
        device_check(device, rt->cudaEventCreateWithFlags(&device->ring->passed[i], CUDA_EVENT_WITHOUT_TIMING),
            "cudaEventCreateWithFlags", 0);
    if (!arithmetic || device->state != DEVICE_OK)
        return;
    if (arithmetic->start(rt, threads, device->error, sizeof device->error))
        device->state = DEVICE_BROKEN;
    else
        device->started = true;
    if (device->started && arithmetic->from_host && !device_host_reaches(rt))
        device_fail(device, "the CPU's arithmetic", "it cannot reach this GPU's memory; use --backend gpu, or --dry, "
                    "or: segalloc run --sim 24GiB -- segalloc-train ...");
}

static void close_transfers(struct device *device)
{
    struct transfers *t = &device->transfers;
    if (!t->stream)
        return;
    device->rt->cudaStreamSynchronize(t->stream);
    device->rt->cudaStreamDestroy(t->stream);
    device->rt->cudaEventDestroy(t->before);
    device->rt->cudaEventDestroy(t->after);
    device_unpin(device, t->scratch);
    *t = (struct transfers){0};
}

void device_close(struct device *device)
{
    assert(device->live == 0 && !device->spare);
    if (device->rt) {
        device->rt->cudaStreamSynchronize(STREAM);
        close_transfers(device);
        if (device->started && device->arithmetic->stop)
            device->arithmetic->stop(device->rt);
        for (int i = 0; i < RING_QUARTERS; i++)
            if (device->ring->passed[i])
                device->rt->cudaEventDestroy(device->ring->passed[i]);
    }
    device->alloc->close(device->alloc);
    free(device->ring);
}

static void device_note_peak(struct device *device)
{
    if (device->live > device->phase_peak)
        device->phase_peak = device->live;
    if (device->live <= device->peak)
        return;
    device->peak = device->live;
    memcpy(device->peak_by, device->live_by, sizeof device->peak_by);
}

void *device_take(struct device *device, size_t bytes)
{
    void *pointer = NULL;
    if (device->state != DEVICE_OK)
        return NULL;
    bool refused = bytes > MOST_LIVE - device->live;
    refused = refused || (device->limit && bytes > device->limit - device->live);
    int rc = refused ? CUDA_ERROR_OUT_OF_MEMORY : device->alloc->take(device->alloc, bytes, &pointer);
    if (!device_check(device, rc, "cudaMalloc", bytes))
        return NULL;
    device->live += bytes;
    device->live_by[device->label] += bytes;
    device->allocations++;
    device_note_peak(device);
    return pointer;
}

void device_swap(struct device *device, const struct paused *come, struct paused *ret_left)
{
    ret_left->live = device->live;
    memcpy(ret_left->live_by, device->live_by, sizeof ret_left->live_by);
    device->live = come->live;
    memcpy(device->live_by, come->live_by, sizeof device->live_by);
    device_note_peak(device);
}

enum budget device_label(struct device *device, enum budget label)
{
    enum budget before = device->label;
    device->label = label;
    return before;
}

void device_give(struct device *device, void *pointer, size_t bytes, enum budget label)
{
    if (!pointer)
        return;
    device->live -= bytes;
    device->live_by[label] -= bytes;
    device_check(device, device->alloc->give(device->alloc, pointer, bytes), "cudaFree", bytes);
}

static void run_launch(void *argument)
{
    const struct launch *launch = argument;
    launch->run(&launch->args);
}

static void run_nothing(void *argument)
{
    (void)argument;
}

static struct launch *next_slot(struct device *device)
{
    struct launch_ring *ring = device->ring;
    uint64_t slot = ring->next++ % RING_SLOTS;
    uint64_t quarter = slot / QUARTER_SLOTS;
    if (slot % QUARTER_SLOTS == 0) {
        uint64_t last = (quarter + RING_QUARTERS - 1) % RING_QUARTERS;
        if (ring->next > 1) {
            device_check(device, device->rt->cudaEventRecord(ring->passed[last], STREAM), "cudaEventRecord", 0);
            ring->recorded[last] = true;
        }
        if (ring->recorded[quarter])
            device_check(device, device->rt->cudaEventSynchronize(ring->passed[quarter]), "cudaEventSynchronize", 0);
    }
    return &ring->slots[slot];
}

void device_launch(struct device *device, const struct kernel_args *args)
{
    if (device->state != DEVICE_OK)
        return;
    device->launches++;
    if (!device->rt)
        return;
    if (!device->arithmetic) {
        if (device->launches % DRY_LAUNCHES == 0)
            device_check(device, device->rt->cudaLaunchHostFunc(STREAM, run_nothing, NULL), "cudaLaunchHostFunc", 0);
        return;
    }
    if (device->arithmetic->queue)
        device_fail(device, "a kernel", device->arithmetic->queue(args));
    else
        device_call(device, args, device->arithmetic->run);
}

void device_call(struct device *device, const struct kernel_args *args, void (*run)(const struct kernel_args *args))
{
    if (device->state != DEVICE_OK || !device->rt || !device->arithmetic)
        return;
    struct launch *launch = next_slot(device);
    launch->run = run;
    launch->args = *args;
    device_check(device, device->rt->cudaLaunchHostFunc(STREAM, run_launch, launch), "cudaLaunchHostFunc", 0);
}

void device_fail(struct device *device, const char *what, const char *fault)
{
    if (!fault || device->state != DEVICE_OK)
        return;
    device->state = DEVICE_BROKEN;
    snprintf(device->error, sizeof device->error, "%s failed: %s", what, fault);
}

static void device_copy(struct device *device, void *to, const void *from, size_t bytes, int kind)
{
    if (device->state == DEVICE_OK && device->rt)
        device_check(device, device->rt->cudaMemcpyAsync(to, from, bytes, kind, STREAM), "cudaMemcpyAsync", bytes);
}

void device_copy_in(struct device *device, void *to, const void *pinned, size_t bytes)
{
    device_copy(device, to, pinned, bytes, CUDA_COPY_TO_DEVICE);
}

void device_copy_out(struct device *device, void *pinned, const void *from, size_t bytes)
{
    device_copy(device, pinned, from, bytes, CUDA_COPY_TO_HOST);
}

static bool open_transfers(struct device *device)
{
    struct transfers *t = &device->transfers;
    const struct cuda_rt *rt = device->rt;
    if (!rt || device->state != DEVICE_OK)
        return false;
    if (t->stream)
        return true;
    return device_check(device, rt->cudaStreamCreateWithFlags(&t->stream, CUDA_STREAM_NON_BLOCKING),
               "cudaStreamCreateWithFlags", 0) &&
           device_check(device, rt->cudaEventCreateWithFlags(&t->before, CUDA_EVENT_WITHOUT_TIMING),
               "cudaEventCreateWithFlags", 0) &&
           device_check(device, rt->cudaEventCreateWithFlags(&t->after, CUDA_EVENT_WITHOUT_TIMING),
               "cudaEventCreateWithFlags", 0);
}

static void device_transfer(struct device *device, void *to, const void *from, size_t bytes, int kind)
{
    struct transfers *t = &device->transfers;
    const struct cuda_rt *rt = device->rt;
    if (device_check(device, rt->cudaEventRecord(t->before, STREAM), "cudaEventRecord", 0) &&
        device_check(device, rt->cudaStreamWaitEvent(t->stream, t->before, 0), "cudaStreamWaitEvent", 0) &&
        device_check(device, rt->cudaMemcpyAsync(to, from, bytes, kind, t->stream), "cudaMemcpyAsync", bytes))
        t->unjoined = true;
}

/* Where a dry run copies to and from; *bytes becomes what fits. */
static void *scratch_of(struct device *device, size_t *bytes)
{
    if (!device->transfers.scratch)
        device->transfers.scratch = device_pin(device, DRY_TRANSFER);
    *bytes = *bytes < DRY_TRANSFER ? *bytes : DRY_TRANSFER;
    return device->transfers.scratch;
}

void device_send(struct device *device, void *pinned, const void *from, size_t bytes)
{
    if (open_transfers(device) && from && (pinned || (pinned = scratch_of(device, &bytes))))
        device_transfer(device, pinned, from, bytes, CUDA_COPY_TO_HOST);
}

void device_fetch(struct device *device, void *to, const void *pinned, size_t bytes)
{
    if (open_transfers(device) && to && (pinned || (pinned = scratch_of(device, &bytes))))
        device_transfer(device, to, pinned, bytes, CUDA_COPY_TO_DEVICE);
}

void device_send_call(struct device *device, void (*run)(void *argument), void *argument)
{
    if (!open_transfers(device))
        return;
    device_check(device, device->rt->cudaLaunchHostFunc(device->transfers.stream, run, argument), "cudaLaunchHostFunc",
        0);
    device->transfers.unjoined = true;
}

void device_join(struct device *device)
{
    struct transfers *t = &device->transfers;
    if (!t->unjoined)
        return;
    t->unjoined = false;
    if (device_check(device, device->rt->cudaEventRecord(t->after, t->stream), "cudaEventRecord", 0))
        device_check(device, device->rt->cudaStreamWaitEvent(STREAM, t->after, 0), "cudaStreamWaitEvent", 0);
}

void device_wait(struct device *device)
{
    device_join(device);
    if (device->rt)
        device_check(device, device->rt->cudaStreamSynchronize(STREAM), "cudaStreamSynchronize", 0);
}

void *device_pin(struct device *device, size_t bytes)
{
    void *pinned = NULL;
    if (!device->rt) {
        if (!(pinned = malloc(bytes)))
            abort();
        return pinned;
    }
    if (device->state != DEVICE_OK ||
        !device_check(device, device->rt->cudaMallocHost(&pinned, bytes), "cudaMallocHost", bytes))
        return NULL;
    return pinned;
}

void device_unpin(struct device *device, void *pinned)
{
    if (!pinned)
        return;
    if (device->rt)
        device_check(device, device->rt->cudaFreeHost(pinned), "cudaFreeHost", 0);
    else
        free(pinned);
}
