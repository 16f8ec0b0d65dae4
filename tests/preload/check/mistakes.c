/* Programs with one mistake of their own each, for `check`: MISTAKE is the name of one. The block that the mistake is
   about is allocated in first_owner() and freed in first_end(), so a finding names these two. A mistake that comes
   after the free waits until the free has taken place on the device: without that wait either may come first. */
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "extra.h"
#include "program.h"
#include "segalloc/segalloc.h"

enum { BYTES = 5000, LARGE = 8 << 20, HUGE = 160 << 20, SMALL = 1000000, SMALL_COUNT = 100 };

static CUstream one, other;

/* Seen by name from outside, so that a place in the program is one of these. */
CUdeviceptr first_owner(size_t bytes, CUstream stream);
CUdeviceptr second_owner(size_t bytes, CUstream stream);
void first_end(CUdeviceptr address, bool by_stream);

APART CUdeviceptr first_owner(size_t bytes, CUstream stream)
{
    CUdeviceptr address = 0;
    if (stream)
        address = (CUdeviceptr)(uintptr_t)malloc_on(bytes, stream);
    else
        MUST(cuMemAlloc_v2(&address, bytes));
    return address;
}

APART void first_end(CUdeviceptr address, bool by_stream)
{
    if (by_stream)
        MUST((CUresult)free_on((void *)(uintptr_t)address));
    else
        MUST(cuMemFree_v2(address));
}

APART CUdeviceptr second_owner(size_t bytes, CUstream stream)
{
    return first_owner(bytes, stream);
}

/* Work of the program's on the stream, so that it is in use. */
static void work(CUdeviceptr address, size_t bytes, CUstream stream)
{
    MUST(cuMemsetD8Async(address, 1, bytes, stream));
}

/* A block of a stream that is freed, and the memory that then serves again. */
static CUdeviceptr freed_on(CUstream stream, size_t bytes)
{
    CUdeviceptr address = first_owner(bytes, stream);
    work(address, bytes, stream);
    first_end(address, true);
    return address;
}

static void serve_again(size_t bytes, CUstream stream)
{
    CUdeviceptr keep = 0;
    if (stream) {
        keep = first_owner(64, stream);
        work(keep, 64, stream);
    }
    CUdeviceptr address = second_owner(bytes, stream);
    work(address, bytes, stream);
    MUST(cuStreamSynchronize(stream));
}

static void set_after_free(void)
{
    work(freed_on(one, BYTES) + 100, 8, one);
    serve_again(BYTES, one);
}

static void set_after_free_elsewhere(void)
{
    CUdeviceptr address = freed_on(one, BYTES);
    MUST(cuStreamSynchronize(one)); /* else the write may come before the free, which is no fault that shows */
    work(address + 100, 8, other);
    MUST(cuStreamSynchronize(other));
    serve_again(BYTES, one);
}

static void copy_after_free(void)
{
    static unsigned char bytes[16];
    MUST(cuMemcpyHtoDAsync_v2(freed_on(one, BYTES) + 4096, bytes, sizeof bytes, one));
    serve_again(BYTES, one);
}

static void copy_from_device_after_free(void)
{
    CUdeviceptr from = first_owner(BYTES, other);
    work(from, BYTES, other);
    CUdeviceptr address = freed_on(one, BYTES);
    MUST(cuStreamSynchronize(one));
    MUST(cuMemcpyDtoDAsync_v2(address, from, 512, other));
    MUST(cuStreamSynchronize(other));
    serve_again(BYTES, one);
}

static void plain_set_after_free(void)
{
    CUdeviceptr address = first_owner(BYTES, NULL);
    work(address, BYTES, one);
    first_end(address, false);
    MUST(cuCtxSynchronize());
    MUST(cuMemsetD8_v2(address + 7, 1, 1));
    MUST(cuCtxSynchronize());
    serve_again(BYTES, NULL);
}

static void plain_copy_after_free(void)
{
    CUdeviceptr address = first_owner(BYTES, NULL);
    work(address, BYTES, one);
    first_end(address, false);
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyHtoD_v2(address, "late", 4));
    MUST(cuCtxSynchronize());
    serve_again(BYTES, NULL);
}

static void large_after_free(void)
{
    work(freed_on(one, LARGE), 64, one); /* at its start */
    serve_again(LARGE, one);
}

static void whole_large_after_free(void)
{
    work(freed_on(one, LARGE), LARGE, one);
    serve_again(LARGE, one);
}

/* The last byte. */
static void end_of_large_after_free(void)
{
    work(freed_on(one, LARGE) + LARGE - 1, 1, one);
    serve_again(LARGE, one);
}

/* The last byte, where the next owner begins in the middle of the block. */
static void last_half_of_large_after_free(void)
{
    CUdeviceptr address = freed_on(one, LARGE);
    work(address + LARGE - 1, 1, one);
    (void)first_owner(LARGE / 2, one);
    serve_again(LARGE / 2, one);
}

/* The second half of a block of many pages. */
static void huge_after_free(void)
{
    CUdeviceptr address = first_owner(HUGE, one);
    work(address, 64, one);
    first_end(address, true);
    work(address + HUGE / 2, HUGE / 2, one);
    serve_again(HUGE, one);
}

/* The same, by one word. */
static void word_of_huge_after_free(void)
{
    CUdeviceptr address = first_owner(HUGE, one);
    work(address, 64, one);
    first_end(address, true);
    work(address + HUGE / 4 * 3, 4, one);
    serve_again(HUGE, one);
}

/* One word once more, behind work that lasts: the kernel is busy for as long as the simulator's `kernel_us` says. */
static void word_of_huge_behind_long_work(void)
{
    CUmodule module;
    CUfunction kernel;
    CUdeviceptr address = first_owner(HUGE, one);
    MUST(cuModuleLoadData(&module, "no code is read"));
    MUST(cuModuleGetFunction(&kernel, module, "touch"));
    first_end(address, true);
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, one, NULL, NULL));
    work(address + HUGE / 4 * 3, 4, one);
    serve_again(HUGE, one);
}

/* The last word, by calls without a stream, for which the host waits. */
static void plain_end_of_large_after_free(void)
{
    CUdeviceptr address = first_owner(LARGE, NULL);
    first_end(address, false);
    MUST(cuMemsetD8_v2(address + LARGE - 4, 1, 4));
    MUST(cuCtxSynchronize());
    serve_again(LARGE, NULL);
}

/* Many blocks are freed and written to, and a large one takes the pages of nearly all. */
static void many_after_free(void)
{
    CUdeviceptr block[SMALL_COUNT];
    for (int i = 0; i < SMALL_COUNT; i++)
        block[i] = first_owner(SMALL, one);
    work(block[0], 64, one);
    for (int i = 0; i < SMALL_COUNT; i++)
        first_end(block[i], true);
    MUST(cuStreamSynchronize(one));
    for (int i = 0; i < SMALL_COUNT; i++)
        work(block[i], 4, one);
    work(second_owner((size_t)SMALL * SMALL_COUNT, one), 64, one);
    MUST(cuStreamSynchronize(one));
}

/* A block whose windows are further apart than one call of the driver may reach; no mistake. */
static void windows_far_apart(void)
{
    size_t bytes = (size_t)17 << 30;
    CUdeviceptr address = first_owner(bytes, one);
    work(address, 64, one);
    first_end(address, true);
    work(second_owner(bytes, one), 64, one);
    MUST(cuStreamSynchronize(one));
}

static void last_byte_after_free(void)
{
    work(freed_on(one, BYTES) + BYTES - 1, 1, one);
    serve_again(BYTES, one);
}

/* The second owner is a smaller one. */
static void part_after_free(void)
{
    work(freed_on(one, LARGE), LARGE, one);
    serve_again(LARGE / 2, one);
}

static void graph_after_free(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr address = first_owner(BYTES, one);
    MUST(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(address, 9, 256, other));
    MUST(cuStreamEndCapture(other, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    work(address, BYTES, one);
    first_end(address, true);
    MUST(cuGraphLaunch(exec, one));
    serve_again(BYTES, one);
}

static void overrun(size_t bytes, size_t by)
{
    CUdeviceptr address = first_owner(bytes, one);
    work(address, bytes + by, one);
    first_end(address, true);
    MUST(cuStreamSynchronize(one));
}

static void overrun_by_1(void)
{
    overrun(BYTES, 1);
}

static void overrun_of_unit_by_1(void)
{
    overrun(4096, 1);
}

static void overrun_by_512(void)
{
    overrun(4096, 512);
}

static void overrun_by_4096(void)
{
    CUdeviceptr behind = 0;
    CUdeviceptr address = first_owner(BYTES, one);
    behind = second_owner(BYTES, one);
    work(address, BYTES + 4096, one);
    first_end(address, true);
    first_end(behind, true);
    MUST(cuStreamSynchronize(one));
}

/* In front of the second block is the canary of the first one. */
static void underrun(void)
{
    CUdeviceptr address = first_owner(4096, one), behind = second_owner(4096, one);
    CUdeviceptr later = address < behind ? behind : address;
    work(later - 400, 500, one);
    first_end(address, true);
    first_end(behind, true);
    MUST(cuStreamSynchronize(one));
}

static void underrun_by_1(void)
{
    CUdeviceptr address = first_owner(4096, one), behind = second_owner(4096, one);
    work((address < behind ? behind : address) - 1, 1, one);
    first_end(address, true);
    first_end(behind, true);
    MUST(cuStreamSynchronize(one));
}

static void plain_overrun(void)
{
    CUdeviceptr address = first_owner(BYTES, NULL);
    MUST(cuMemsetD8_v2(address, 1, BYTES + 1));
    first_end(address, false);
}

static void double_free(void)
{
    (void)free_on((void *)(uintptr_t)freed_on(one, BYTES));
}

static void plain_double_free(void)
{
    CUdeviceptr address = first_owner(BYTES, NULL);
    work(address, BYTES, one);
    first_end(address, false);
    (void)cuMemFree_v2(address);
}

static void free_of_the_middle(void)
{
    (void)cuMemFree_v2(first_owner(BYTES, NULL) + 512);
}

static void free_of_an_odd_address(void)
{
    (void)cuMemFree_v2(first_owner(BYTES, NULL) + 3);
}

/* A block that is not filled at its free, since there are two contexts. */
static void double_free_beside_contexts(void)
{
    CUcontext context;
    CUdeviceptr address = first_owner(BYTES, NULL);
    MUST(cuCtxCreate_v2(&context, 0, 0));
    first_end(address, false);
    (void)cuMemFree_v2(address);
}

/* Three places that free what is no block: two within one block, and one in memory that nobody has had. */
static void wrong_frees(void)
{
    CUdeviceptr address = first_owner(BYTES, NULL);
    (void)cuMemFree_v2(address + 512);
    (void)cuMemFree_v2(address + 1024);
    (void)cuMemFree_v2(address + 16384);
}

/* 300 places that free a block twice. */
static void many_places(void)
{
#define TWICE                                           \
    {                                                   \
        CUdeviceptr address = first_owner(BYTES, NULL); \
        (void)cuMemFree_v2(address);                    \
        (void)cuMemFree_v2(address);                    \
    }
#define TEN(what) what what what what what what what what what what
#define HUNDRED(what) \
    TEN(what) TEN(what) TEN(what) TEN(what) TEN(what) TEN(what) TEN(what) TEN(what) TEN(what) TEN(what)
    HUNDRED(TWICE)
    HUNDRED(TWICE)
    HUNDRED(TWICE)
#undef HUNDRED
#undef TEN
#undef TWICE
}

static void free_in_another_context(void)
{
    CUcontext context;
    CUdeviceptr address = first_owner(BYTES, NULL);
    MUST(cuCtxCreate_v2(&context, 0, 0));
    (void)cuMemFree_v2(address);
}

/* A stream that used the block was not recorded. */
static void unrecorded_stream(void)
{
    CUdeviceptr address = first_owner(BYTES, one);
    work(address, BYTES, one);
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, one));
    MUST(cuStreamWaitEvent(other, event, 0));
    work(address, 64, one);
    first_end(address, true);
    MUST(cuStreamSynchronize(one));
    work(address, BYTES, other);
    MUST(cuStreamSynchronize(other));
    serve_again(BYTES, one);
}

static void after_the_stream_is_gone(void)
{
    CUdeviceptr address = freed_on(one, BYTES);
    MUST(cuStreamSynchronize(one));
    MUST(cuStreamDestroy_v2(one));
    work(address, 32, other);
    MUST(cuStreamSynchronize(other));
    one = other;
    serve_again(BYTES, other);
}

/* The kernel of kernel_still_queued(): it is at work until the host has said so, or for two seconds. */
static atomic_bool may_write;

static void late_write(void **arguments)
{
    unsigned char *bytes = *(unsigned char **)arguments[0];
    uint64_t count = *(uint64_t *)arguments[1];
    for (int i = 0; i < 2000 && !atomic_load(&may_write); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    memset(bytes, 1, count);
}

/* A kernel of another stream was queued before the free, and nothing names that stream. It writes once the free has taken place. */
static void kernel_still_queued(void)
{
    segalloc_sim_kernel_fn declare;
    CUmodule module;
    CUfunction kernel;
    CUdeviceptr address = first_owner(BYTES, one);
    uint64_t count = 256;
    void *arguments[] = {&address, &count};
    find("segalloc_sim_kernel", &declare);
    if (!declare || declare("late_write", "w bytes[count], u64 count", late_write))
        exit(2);
    MUST(cuModuleLoadData(&module,
        ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry late_write() { ret; }\n"));
    MUST(cuModuleGetFunction(&kernel, module, "late_write"));
    work(address, BYTES, one);
    MUST(cuStreamSynchronize(one));
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, other, arguments, NULL));
    work(address, 64, one);
    first_end(address, true);
    while (cuStreamQuery(one) == CUDA_ERROR_NOT_READY) /* a wait would do other streams' work */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_store(&may_write, true);
    MUST(cuStreamSynchronize(other));
    serve_again(BYTES, one);
}

/* The context that the block was of has ended. The first one writes there. */
static void after_the_context_is_gone(void)
{
    CUcontext first, context;
    MUST(cuCtxGetCurrent(&first));
    MUST(cuCtxCreate_v2(&context, 0, 0));
    CUdeviceptr address = first_owner(BYTES, NULL);
    MUST(cuMemsetD8_v2(address, 1, BYTES));
    MUST(cuCtxSynchronize());
    MUST(cuCtxDestroy_v2(context));
    MUST(cuCtxSetCurrent(first));
    (void)cuMemsetD8Async(address, 2, 64, one);
    (void)cuStreamSynchronize(one);
    serve_again(BYTES, NULL);
}

static void free_after_the_context_is_gone(void)
{
    CUcontext first, context;
    MUST(cuCtxGetCurrent(&first));
    MUST(cuCtxCreate_v2(&context, 0, 0));
    CUdeviceptr address = first_owner(BYTES, NULL);
    MUST(cuCtxDestroy_v2(context));
    MUST(cuCtxSetCurrent(first));
    (void)cuMemFree_v2(address);
}

/* A block of a capture, which its graph has held. The graph is gone, and somebody writes there. */
static void after_the_graph_is_gone(void)
{
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUdeviceptr address = first_owner(BYTES, one);
    work(address, BYTES, one);
    first_end(address, true);
    MUST(cuStreamEndCapture(one, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, one));
    MUST(cuStreamSynchronize(one));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    work(address, 64, one);
    MUST(cuStreamSynchronize(one));
    serve_again(BYTES, one);
}

/* A graph is launched once more than the block of it that the program freed is there for. */
static void graph_launched_after_its_block_is_gone(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr address = first_owner(BYTES, one);
    MUST(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(address, 9, 256, one));
    MUST(cuStreamEndCapture(one, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, one));
    first_end(address, true);
    MUST(cuStreamSynchronize(one));
    MUST(cuGraphLaunch(exec, one));
    MUST(cuStreamSynchronize(one));
    serve_again(BYTES, one);
}

/* A program that takes all there is: says how many blocks of 16 MiB that were. The last ones leave no room for what is
   checked behind them. */
static void edge(void)
{
    CUdeviceptr address;
    int count = 0;
    while (cuMemAlloc_v2(&address, 16 << 20) == CUDA_SUCCESS)
        count++;
    printf("%d\n", count);
}

/* Odd sizes on a card that is so full that no block has bytes for a canary. Others begin and end where those did not. */
static void odd_sizes_on_a_full_card(void)
{
    CUdeviceptr most = first_owner((size_t)900 << 20, NULL), block[100];
    for (size_t round = 0; round < 4; round++) {
        for (size_t i = 0; i < 100; i++)
            block[i] = first_owner(4001 + (i * 7 + round * 331) % 6000, one);
        work(most, 64, one);
        for (size_t i = 0; i < 100; i++)
            first_end(block[i], true);
        work(most, 64, one);
    }
    MUST(cuStreamSynchronize(one));
}

/* None: what a program may do. */
static void none(void)
{
    serve_again(BYTES, one);
    for (int i = 0; i < 100; i++) {
        CUdeviceptr address = freed_on(i % 2 ? one : other, (size_t)BYTES * (size_t)(i % 7 + 1));
        (void)address;
        serve_again(BYTES, i % 3 ? one : other);
    }
}

static const struct mistake {
    const char *name;
    void (*make)(void);
} mistakes[] = {
#define MISTAKE(name) {#name, name}
    MISTAKE(none),
    MISTAKE(edge),
    MISTAKE(odd_sizes_on_a_full_card),
    MISTAKE(set_after_free),
    MISTAKE(set_after_free_elsewhere),
    MISTAKE(copy_after_free),
    MISTAKE(copy_from_device_after_free),
    MISTAKE(plain_set_after_free),
    MISTAKE(plain_copy_after_free),
    MISTAKE(large_after_free),
    MISTAKE(whole_large_after_free),
    MISTAKE(huge_after_free),
    MISTAKE(end_of_large_after_free),
    MISTAKE(last_half_of_large_after_free),
    MISTAKE(word_of_huge_after_free),
    MISTAKE(word_of_huge_behind_long_work),
    MISTAKE(plain_end_of_large_after_free),
    MISTAKE(many_after_free),
    MISTAKE(windows_far_apart),
    MISTAKE(last_byte_after_free),
    MISTAKE(part_after_free),
    MISTAKE(graph_after_free),
    MISTAKE(overrun_by_1),
    MISTAKE(overrun_of_unit_by_1),
    MISTAKE(overrun_by_512),
    MISTAKE(overrun_by_4096),
    MISTAKE(underrun),
    MISTAKE(underrun_by_1),
    MISTAKE(plain_overrun),
    MISTAKE(double_free),
    MISTAKE(plain_double_free),
    MISTAKE(double_free_beside_contexts),
    MISTAKE(wrong_frees),
    MISTAKE(many_places),
    MISTAKE(free_of_the_middle),
    MISTAKE(free_of_an_odd_address),
    MISTAKE(free_in_another_context),
    MISTAKE(unrecorded_stream),
    MISTAKE(after_the_stream_is_gone),
    MISTAKE(kernel_still_queued),
    MISTAKE(after_the_context_is_gone),
    MISTAKE(free_after_the_context_is_gone),
    MISTAKE(after_the_graph_is_gone),
    MISTAKE(graph_launched_after_its_block_is_gone),
};

int main(int count, char **argument)
{
    if (count != 2)
        return 2;
    begin_program();
    MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        if (strcmp(argument[1], mistakes[i].name) == 0) {
            mistakes[i].make();
            return 0;
        }
    }
    return 2;
}
