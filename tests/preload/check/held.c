/* A program whose stream waits for the program itself, and holds 16 pieces of work at a time. The program gives it 13 at most. It ends
   with `check` too, whose own work there would wait for room that only the program can make.

     held SCENARIO */
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "program.h"

enum { PIECES = 12, BLOCKS = 8, BYTES = 5000, LIMIT_S = 60 };

static CUstream one, other;
static _Atomic unsigned *word; /* pinned; 1: the stream may go on */
static CUdeviceptr word_address, bytes;

static void hold_by_word(void)
{
    MUST(cuStreamWaitValue32_v2(one, word_address, 1, 0));
}

static void go_on(void)
{
    *word = 1;
    MUST(cuCtxSynchronize());
    *word = 0;
}

static void give(CUstream stream)
{
    for (int i = 0; i < PIECES; i++)
        MUST(cuMemsetD8Async(bytes, 1, BYTES, stream));
}

static atomic_bool begun;

static void wait_for_word(void *unused)
{
    (void)unused;
    begun = true;
    while (!*word)
        usleep(100);
}

static void by_word(void)
{
    hold_by_word();
    give(one);
    go_on();
}

static void by_batch(void)
{
    CUstreamBatchMemOpParams wait = {
        .waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = word_address, .value = 1}};
    MUST(cuStreamBatchMemOp_v2(one, 1, &wait, 0));
    give(one);
    go_on();
}

static void by_function(void)
{
    begun = false;
    MUST(cuLaunchHostFunc(one, wait_for_word, NULL));
    while (!begun)
        usleep(100);
    give(one);
    go_on();
}

static void call_back(CUstream stream, CUresult status, void *user)
{
    MUST(status);
    if (stream == one)
        wait_for_word(user);
}

static void by_callback(void)
{
    begun = false;
    MUST(cuStreamAddCallback(one, call_back, NULL, 0));
    while (!begun)
        usleep(100);
    give(one);
    go_on();
}

static void by_graph(void)
{
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    hold_by_word();
    MUST(cuStreamEndCapture(one, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, one));
    give(one);
    go_on();
}

/* Another stream comes after the one that waits. */
static void by_event(void)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    hold_by_word();
    MUST(cuEventRecord(event, one));
    MUST(cuStreamWaitEvent(other, event, 0));
    give(other);
    go_on();
}

static void take(CUdeviceptr block[BLOCKS], CUstream stream)
{
    for (int i = 0; i < BLOCKS; i++)
        if (stream)
            block[i] = (CUdeviceptr)(uintptr_t)malloc_on(BYTES, stream);
        else
            MUST(cuMemAlloc_v2(&block[i], BYTES));
}

static void drop(const CUdeviceptr block[BLOCKS], CUstream stream)
{
    for (int i = 0; i < BLOCKS; i++)
        MUST(stream ? (CUresult)free_on((void *)(uintptr_t)block[i]) : cuMemFree_v2(block[i]));
}

static void frees(CUstream stream)
{
    CUdeviceptr block[BLOCKS];
    take(block, stream);
    MUST(cuMemsetD8Async(block[0], 1, BYTES, one));
    hold_by_word();
    MUST(cuMemsetD8Async(block[0], 1, BYTES, one));
    drop(block, stream);
    go_on();
}

static void by_frees(void)
{
    frees(one);
}

/* The fill waits for all work, under `free_sync:event`. */
static void by_plain_frees(void)
{
    frees(NULL);
}

static void allocations(CUstream stream)
{
    CUdeviceptr block[BLOCKS];
    take(block, stream);
    MUST(cuMemsetD8Async(block[0], 1, BYTES, one));
    drop(block, stream);
    MUST(cuMemsetD8Async(bytes, 1, BYTES, one));
    MUST(cuStreamSynchronize(one));
    hold_by_word();
    MUST(cuMemsetD8Async(bytes, 1, BYTES, one));
    take(block, stream);
    go_on();
}

static void by_allocations(void)
{
    allocations(one);
}

static void by_plain_allocations(void)
{
    allocations(NULL);
}

static const struct {
    const char *name;
    void (*play)(void);
} scenarios[] = {
    {"word", by_word},
    {"batch", by_batch},
    {"function", by_function},
    {"callback", by_callback},
    {"graph", by_graph},
    {"event", by_event},
    {"frees", by_frees},
    {"plain_frees", by_plain_frees},
    {"allocations", by_allocations},
    {"plain_allocations", by_plain_allocations},
};

int main(int count, char **argument)
{
    void *pinned;
    if (count != 2)
        return 2;
    begin_program();
    MUST(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(pinned, 0, 4096);
    word = pinned;
    MUST(cuMemHostGetDevicePointer_v2(&word_address, pinned, 0));
    MUST(cuMemAlloc_v2(&bytes, BYTES));
    MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    give(other); /* `check` has what it needs of the context */
    MUST(cuCtxSynchronize());
    alarm(LIMIT_S);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(argument[1], scenarios[i].name) == 0) {
            for (int again = 0; again < 3; again++)
                scenarios[i].play();
            return 0;
        }
    }
    return 2;
}
