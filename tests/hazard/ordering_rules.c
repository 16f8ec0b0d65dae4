/* Rules of stream order that random programs seldom need, one scenario a run. README.md describes each.

     ordering_rules SCENARIO */
#include <string.h>
#include <unistd.h>

#include "stage.h"

enum { PIECE = 2 * MIB, PIECES = 64, MOST = 40 * MIB /* of a card of 64 MiB */ };

/* The block's own stream comes after the second one's work without any call that says so of these two. */
static void by_legacy_rules(CUstream own, CUstream second)
{
    (void)own;
    (void)second;
}

static void by_context_event(CUstream own, CUstream second)
{
    (void)second;
    CUcontext context;
    CUevent event;
    MUST(cuCtxGetCurrent(&context));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxRecordEvent(context, event));
    MUST(cuStreamWaitEvent(own, event, 0));
    MUST(cuEventDestroy_v2(event));
}

static atomic_bool let_go;

static void hold(void *unused)
{
    (void)unused;
    while (!let_go)
        usleep(100);
}

/* A third stream has waited for the block's own, but not since the second one used the block. `fourth`, unless NULL, is
   a stream that used it too. */
static void used_after_a_wait(CUstream own, CUstream second, CUstream fourth,
    void (*come_after)(CUstream own, CUstream second))
{
    CUstream third = stream_of(CU_STREAM_NON_BLOCKING);
    MUST((CUresult)extras.free(block_on(third, 4))); /* all are followed */
    MUST((CUresult)extras.free(block_on(second, 5)));
    MUST(cuCtxSynchronize());
    void *block = block_on(own, 1), *other = block_on(third, 3); /* all that is free */
    wait_for(second, own);
    wait_for(third, own);
    if (fourth) {
        wait_for(fourth, own);
        MUST((CUresult)extras.record_stream(block, fourth));
        MUST(cuMemsetD8Async(number(block), 1, BLOCK, fourth));
        wait_for(third, fourth);
        MUST(cuLaunchHostFunc(second, hold, NULL)); /* not even by asking is it known to be complete */
    }
    MUST(cuMemsetD8Async(number(block), 1, BLOCK, second));
    come_after(own, second);
    extras.owner(number(block), BLOCK, 0);
    MUST((CUresult)extras.free(block));
    void *next = block_on(third, 2);
    let_go = true;
    if (fourth)
        MUST(cuCtxSynchronize());
    EXPECT(extras.hazards() == 0);
    extras.owner(number(next), BLOCK, 0);
    MUST((CUresult)extras.free(next));
    extras.owner(number(other), BLOCK, 0);
    MUST((CUresult)extras.free(other));
    MUST(cuCtxSynchronize());
}

/* Long after it could have been missed. */
static void run_late(void *unused)
{
    usleep(20000);
    run(unused);
}

static CUcontext other_context(void)
{
    CUcontext other = NULL;
    MUST(cuCtxCreate_v2(&other, 0, 0)); /* and makes it current */
    return other;
}

/* Too little is freed for the library to ask at once what is complete. */
static void freed_over_a_context(void)
{
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    CUdeviceptr piece[PIECES], next;
    int pieces = 0;
    while (pieces < PIECES && cuMemAlloc_v2(&piece[pieces], PIECE) == CUDA_SUCCESS)
        pieces++;
    EXPECT(pieces > 1 && pieces < PIECES);
    MUST(cuMemsetD8Async(piece[--pieces], 1, PIECE, stream));
    MUST(cuMemFree_v2(piece[pieces]));
    CUcontext other = other_context();
    MUST(cuMemAlloc_v2(&next, PIECE));
    MUST(cuMemFree_v2(next));
    while (pieces > 0)
        MUST(cuMemFree_v2(piece[--pieces]));
    MUST(cuCtxDestroy_v2(other));
}

static void freed_over_streams(void)
{
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING);
    void *first = extras.malloc_on(MOST, stream), *next;
    EXPECT(first != NULL);
    MUST((CUresult)extras.record_stream(first, second));
    MUST(cuMemsetD8Async(number(first), 1, MIB, second));
    CUcontext other = other_context();
    MUST((CUresult)extras.free(first));
    next = extras.malloc_on(MOST, stream);
    EXPECT(next != NULL);
    MUST((CUresult)extras.free(next));
    MUST(cuCtxDestroy_v2(other));
}

static uint64_t passed_on(void)
{
    struct segalloc_stat list[128];
    int count = extras.stats(0, list, 128);
    for (int i = 0; i < count; i++) {
        if (strcmp(list[i].name, "passed_on") == 0)
            return list[i].value;
    }
    return 0;
}

static void copy_to_host(CUdeviceptr address, CUstream stream)
{
    void *host; /* is there until the program ends */
    MUST(cuMemHostAlloc(&host, BLOCK, 0));
    MUST(cuMemcpyDtoHAsync_v2(host, address, BLOCK, stream));
}

static void set(CUdeviceptr address, CUstream stream)
{
    MUST(cuMemsetD8Async(address, 2, BLOCK, stream));
}

static void work_on(CUdeviceptr address, CUstream stream)
{
    extras.touches(address, BLOCK, 1);
    MUST(cuLaunchHostFunc(stream, run, NULL));
}

enum far { ALONE, WITH_ACCESS, WAITED_BESIDE };

/* PyTorch's, whose free nobody tells of that stream. */
static void used_from_far(void (*give_work)(CUdeviceptr address, CUstream stream), enum far how)
{
    CUcontext near, far;
    start_following();
    CUstream own = followed(CU_STREAM_NON_BLOCKING);
    MUST(cuCtxGetCurrent(&near));
    MUST(cuDevicePrimaryCtxRetain(&far, 1));
    MUST(cuCtxSetCurrent(far));
    CUstream second = stream_of(CU_STREAM_NON_BLOCKING);
    MUST(how == WITH_ACCESS ? cuCtxEnablePeerAccess(near, 0) : CUDA_SUCCESS);
    if (how == WAITED_BESIDE)
        (void)tensor_on(second, 3);
    MUST(cuCtxSetCurrent(near));
    void *tensor = tensor_on(own, 1);
    wait_for(second, own);
    give_work(number(tensor), second);
    extras.owner(number(tensor), BLOCK, 0);
    extras.release(tensor);
    if (how == WAITED_BESIDE)
        MUST(cuCtxSynchronize());
    ask_again(own, BLOCK);
    MUST(cuStreamSynchronize(second));
}

static void *allocate(CUstream stream, bool torch, size_t bytes)
{
    if (!torch)
        return extras.malloc_on(bytes, stream);
    extras.set_current_stream(stream);
    return extras.tensor(bytes);
}

/* The program's own pool takes a little: what is left of the card in the end is no page, and only the driver can serve
   it. */
static void freed_by_the_driver(CUcontext first, bool torch)
{
    enum { BLOCKS = 80 };
    CUcontext second;
    CUdeviceptr source, pooled;
    void *block[BLOCKS];
    int blocks = 0;
    if (torch)
        find_torch();
    CUstream own = stream_of(CU_STREAM_NON_BLOCKING);
    MUST(cuMemAllocAsync(&pooled, 1, own));
    while (passed_on() == 0) {
        EXPECT(blocks < BLOCKS && (block[blocks++] = allocate(own, torch, MIB)) != NULL);
    }
    void *drivers = block[--blocks];
    MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuCtxSetCurrent(second));
    CUstream far = stream_of(CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc_v2(&source, MIB));
    MUST(cuCtxSetCurrent(first));
    wait_for(far, own);
    MUST(cuLaunchHostFunc(far, run_late, NULL));
    MUST(cuMemcpyPeerAsync(number(drivers), first, source, second, MIB, far));
    MUST(torch ? CUDA_SUCCESS : (CUresult)extras.record_stream(drivers, far));
    if (torch)
        extras.release(drivers);
    else
        MUST((CUresult)extras.free(drivers));
    EXPECT(ran && cuStreamQuery(far) == CUDA_SUCCESS);
    while (blocks > 0) {
        if (torch)
            extras.release(block[--blocks]);
        else
            MUST((CUresult)extras.free(block[--blocks]));
    }
    MUST(cuMemFree_v2(source));
    MUST(cuMemFreeAsync(pooled, own));
}

static void freed_after_legacy_work(bool named)
{
    CUstream blocking = stream_of(CU_STREAM_DEFAULT), third = stream_of(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 3; i++) {
        CUdeviceptr block, next;
        if (named)
            block = (CUdeviceptr)(uintptr_t)extras.malloc_on(BLOCK, blocking);
        else
            MUST(cuMemAlloc_v2(&block, BLOCK));
        EXPECT(block);
        extras.owner(block, BLOCK, (uint64_t)(2 * i + 1));
        MUST(cuMemsetD8Async(block, 1, BLOCK, blocking));
        MUST(cuStreamSynchronize(blocking));
        MUST(cuMemsetD8Async(block, 2, BLOCK, NULL));
        extras.owner(block, BLOCK, 0);
        if (named)
            EXPECT(extras.free((void *)(uintptr_t)block) == 0);
        else
            MUST(cuMemFreeAsync(block, blocking));
        MUST(cuStreamSynchronize(blocking));
        EXPECT((next = (CUdeviceptr)(uintptr_t)extras.malloc_on(BLOCK, third)) != 0);
        extras.owner(next, BLOCK, (uint64_t)(2 * i + 2));
        MUST(cuMemsetD8Async(next, 3, BLOCK, third));
        MUST(cuCtxSynchronize());
        extras.owner(next, BLOCK, 0);
        EXPECT(extras.free((void *)(uintptr_t)next) == 0);
    }
}

/* All is complete when `second` begins to work on a block of `own`, which comes after that by `come_after`. The third
   stream is of another context. */
static void used_since_complete(CUstream own, CUstream second, void (*come_after)(CUstream own, CUstream second))
{
    CUcontext context, other = NULL;
    MUST(cuCtxGetCurrent(&context));
    MUST(cuCtxCreate_v2(&other, 0, 0));
    CUstream third = stream_of(CU_STREAM_NON_BLOCKING);
    MUST((CUresult)extras.free(block_on(third, 3)));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(context));
    show_events(CU_STREAM_LEGACY);
    void *block = block_on(own, 1); /* all that is free */
    wait_for(second, own);
    MUST(cuCtxSynchronize());
    MUST(cuMemsetD8Async(number(block), 1, BLOCK, second));
    come_after(own, second);
    extras.owner(number(block), BLOCK, 0);
    MUST((CUresult)extras.free(block));
    (void)cuStreamQuery(own);
    MUST(cuCtxSetCurrent(other));
    void *next = block_on(third, 2);
    EXPECT(extras.hazards() == 0);
    extras.owner(number(next), BLOCK, 0);
    MUST((CUresult)extras.free(next));
    MUST(cuCtxDestroy_v2(other));
    MUST(cuCtxSynchronize());
}

static void by_legacy_event(CUstream own, CUstream second)
{
    (void)second;
    wait_for(own, CU_STREAM_LEGACY);
}

static void by_context_wait(CUstream own, CUstream second)
{
    (void)own;
    context_wait_for(second);
}

/* Of a block that no stream was named for; nothing is followed before somebody names one. */
static void freed_by_a_step(bool legacy)
{
    CUstream own = stream_of(legacy ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    CUstream second = legacy ? CU_STREAM_LEGACY : stream_of(CU_STREAM_NON_BLOCKING);
    CUstream third = stream_of(CU_STREAM_NON_BLOCKING);
    CUdeviceptr block;
    CUevent event;
    MUST(cuMemAlloc_v2(&block, BLOCK));
    extras.owner(block, BLOCK, 1);
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemsetD8Async(block, 1, BLOCK, second));
    MUST(cuEventRecord(event, second));
    if (!legacy) {
        void *other = extras.malloc_on(BLOCK, third);
        EXPECT(other != NULL);
        show_events(own);
        MUST(cuStreamSynchronize(own));
        MUST(cuStreamWaitEvent(own, event, 0));
    }
    extras.owner(block, BLOCK, 0);
    MUST(cuMemFreeAsync(block, own));
    if (legacy) {
        show_events(second);
        MUST(cuStreamSynchronize(own));
    }
    void *next = block_on(third, 2);
    EXPECT(extras.hazards() == 0);
    extras.owner(number(next), BLOCK, 0);
    MUST((CUresult)extras.free(next));
    MUST(cuEventDestroy_v2(event));
    MUST(cuCtxSynchronize());
}

static void freed_and_asked_for(void *block, CUstream third)
{
    extras.owner(number(block), BLOCK, 0);
    MUST((CUresult)extras.free(block));
    void *next = block_on(third, 2);
    EXPECT(extras.hazards() == 0);
    extras.owner(number(next), BLOCK, 0);
    MUST((CUresult)extras.free(next));
    MUST(cuCtxSynchronize());
}

static void freed_after_its_stream(bool legacy, bool reused)
{
    CUstream own = stream_of(legacy ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    CUstream second = legacy ? CU_STREAM_LEGACY : stream_of(CU_STREAM_NON_BLOCKING);
    CUstream third = reused ? NULL : stream_of(CU_STREAM_NON_BLOCKING);
    MUST((CUresult)extras.free(block_on(second, 5)));
    MUST((CUresult)extras.free(block_on(own, 6)));
    if (third)
        MUST((CUresult)extras.free(block_on(third, 7)));
    MUST(cuCtxSynchronize());
    void *block = block_on(own, 1);
    MUST(cuStreamSynchronize(own));
    MUST(cuMemsetD8Async(number(block), 1, BLOCK, second));
    if (!legacy)
        by_context_event(own, second);
    MUST(cuStreamDestroy_v2(own));
    if (reused) {
        third = stream_of(CU_STREAM_NON_BLOCKING);
        show_events(third);
    }
    freed_and_asked_for(block, third);
}

static void recorded_before(bool external)
{
    CUevent event;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUstream own = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING);
    CUstream third = stream_of(CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    if (external) {
        MUST(cuStreamBeginCapture_v2(second, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(cuEventRecordWithFlags(event, second, CU_EVENT_RECORD_EXTERNAL));
        MUST(cuStreamEndCapture(second, &graph));
    } else {
        MUST(cuGraphCreate(&graph, 0));
        MUST(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
    }
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    void *block = block_on(own, 1);
    MUST(cuEventRecord(event, own));
    MUST(cuGraphLaunch(exec, second));
    MUST(cuStreamWaitEvent(third, event, 0));
    freed_and_asked_for(block, third);
}

int main(int count, char **argument)
{
    CUcontext context = begin();
    const char *rule = count > 1 ? argument[1] : "";
    if (strcmp(rule, "legacy_free") == 0)
        used_after_a_wait(CU_STREAM_LEGACY, stream_of(CU_STREAM_DEFAULT), NULL, by_legacy_rules);
    else if (strcmp(rule, "legacy_event") == 0)
        used_since_complete(stream_of(CU_STREAM_NON_BLOCKING), stream_of(CU_STREAM_DEFAULT), by_legacy_event);
    else if (strcmp(rule, "idle_context") == 0)
        used_since_complete(stream_of(CU_STREAM_NON_BLOCKING), stream_of(CU_STREAM_NON_BLOCKING), by_context_wait);
    else if (strcmp(rule, "step_event") == 0 || strcmp(rule, "step_legacy") == 0)
        freed_by_a_step(strcmp(rule, "step_legacy") == 0);
    else if (strcmp(rule, "idle_plain") == 0 || strcmp(rule, "idle_named") == 0)
        freed_after_legacy_work(strcmp(rule, "idle_named") == 0);
    else if (strcmp(rule, "legacy_shared") == 0)
        used_after_a_wait(CU_STREAM_LEGACY, stream_of(CU_STREAM_DEFAULT), stream_of(CU_STREAM_NON_BLOCKING),
            by_legacy_rules);
    else if (strcmp(rule, "context_event_free") == 0)
        used_after_a_wait(stream_of(CU_STREAM_NON_BLOCKING), stream_of(CU_STREAM_NON_BLOCKING), NULL, by_context_event);
    else if (strcmp(rule, "destroyed_context_event") == 0 || strcmp(rule, "destroyed_reused") == 0 ||
             strcmp(rule, "destroyed_legacy") == 0)
        freed_after_its_stream(strcmp(rule, "destroyed_legacy") == 0, strcmp(rule, "destroyed_reused") == 0);
    else if (strcmp(rule, "before_graph") == 0 || strcmp(rule, "before_external") == 0)
        recorded_before(strcmp(rule, "before_external") == 0);
    else if (strcmp(rule, "context") == 0)
        freed_over_a_context();
    else if (strcmp(rule, "stream_context") == 0)
        freed_over_streams();
    else if (strcmp(rule, "cross_device_copy") == 0)
        used_from_far(copy_to_host, ALONE);
    else if (strcmp(rule, "cross_device_set") == 0)
        used_from_far(set, ALONE);
    else if (strcmp(rule, "cross_device_work") == 0)
        used_from_far(work_on, WITH_ACCESS);
    else if (strcmp(rule, "cross_device_wait") == 0)
        used_from_far(copy_to_host, WAITED_BESIDE);
    else if (strcmp(rule, "driver_block") == 0 || strcmp(rule, "driver_block_torch") == 0)
        freed_by_the_driver(context, strcmp(rule, "driver_block_torch") == 0);
    else
        return 2;
    EXPECT(extras.hazards() == 0);
    return 0;
}
