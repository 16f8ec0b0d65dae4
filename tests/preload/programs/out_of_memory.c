/* Preloaded, on the simulator: programs that run out of memory, one for each reason there is, and some for two at once.
   Each is named by its first argument; out_of_memory.py has what is to be said of it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "segalloc/segalloc.h"
#include "served.h"

#define MIB ((size_t)1 << 20)
#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static CUcontext context;
static CUstream stream;

static void start(void)
{
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr address = 0;
    MUST(cuMemAlloc_v2(&address, bytes));
    return address;
}

static void run_out(size_t bytes)
{
    CUdeviceptr address;
    EXPECT(cuMemAlloc_v2(&address, bytes) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* Weights, and then one tensor that no card of this size holds beside them. */
static void one_tensor(void)
{
    for (int i = 0; i < 10; i++)
        take(10 * MIB);
    run_out(400 * MIB);
}

/* Activations that are kept until there is no room for the next. */
static void grows(void)
{
    CUdeviceptr address;
    while (cuMemAlloc_v2(&address, 6 * MIB) == CUDA_SUCCESS)
        ;
}

/* Every other one of many blocks that share pages. */
static void comb(size_t block, int count, size_t asked)
{
    CUdeviceptr *address = calloc((size_t)count, sizeof *address);
    for (int i = 0; i < count; i++)
        address[i] = take(block);
    for (int i = 0; i < count; i += 2)
        MUST(cuMemFree_v2(address[i]));
    free(address);
    run_out(asked);
}

static void comb_of_pages(void)
{
    comb(3 * MIB / 2, 160, 100 * MIB);
}

/* For fixed segments, of which each keeps a small part in use. */
static void comb_of_segments(void)
{
    comb(8 * MIB, 24, 40 * MIB);
}

static void above_limit(void)
{
    take(100 * MIB);
    run_out(60 * MIB);
}

/* A limit that the program sets while it runs. */
static void above_own_limit(void)
{
    take(100 * MIB);
    EXPECT(segalloc_set_limit(0, 128 * MIB) == 128 * MIB);
    run_out(60 * MIB);
}

/* Memory that the program takes from the driver itself. */
static void take_physical(size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    MUST(cuMemCreate(&handle, bytes, &prop, 0));
}

static bool others_by_physical; /* other processes hold theirs so */

static void holds(size_t bytes, int ready, int over)
{
    char byte = 0;
    start();
    if (others_by_physical)
        take_physical(bytes);
    else
        take(bytes);
    EXPECT(write(ready, &byte, 1) == 1);
    EXPECT(read(over, &byte, 1) == 0);
    _exit(failures != 0);
}

/* Beside as many other processes, each of which holds so much. */
static void beside(int others, size_t each, void (*what)(void))
{
    int ready[2], over[2];
    char byte;
    EXPECT(pipe(ready) == 0 && pipe(over) == 0);
    for (int i = 0; i < others; i++) {
        if (fork() == 0) {
            close(over[1]);
            holds(each, ready[1], over[0]);
        }
        EXPECT(read(ready[0], &byte, 1) == 1);
    }
    start();
    what();
    close(over[1]);
    for (int status; wait(&status) > 0;)
        EXPECT(status == 0);
}

static void takes_the_rest(void)
{
    take(60 * MIB);
    run_out(120 * MIB);
}

static void beside_one(void)
{
    beside(1, 120 * MIB, takes_the_rest);
}

/* This process holds nothing yet: it is known by its context. */
static void takes_first(void)
{
    run_out(100 * MIB);
}

static void first_by_one_physical(void)
{
    others_by_physical = true;
    beside(1, 200 * MIB, takes_first);
}

static void beside_two(void)
{
    beside(2, 50 * MIB, takes_the_rest);
}

static void comb_of_half(void)
{
    comb(3 * MIB / 2, 80, 40 * MIB);
}

/* They would be in the way of nothing if this program's own memory were in one piece. */
static void beside_and_fragmented(void)
{
    beside(1, 100 * MIB, comb_of_half);
}

static void takes_more_than_all(void)
{
    take(60 * MIB);
    run_out(300 * MIB);
}

/* Without them it would not fit either. */
static void beside_and_too_big(void)
{
    beside(1, 100 * MIB, takes_more_than_all);
}

static atomic_bool over;

static void until_over(void *unused)
{
    (void)unused;
    while (!over)
        usleep(1000);
}

/* Freed behind work that goes on for longer than is waited for. */
static void behind_a_kernel(void)
{
    void *block = segalloc_malloc_on(150 * MIB, stream);
    EXPECT(block != NULL);
    MUST(cuLaunchHostFunc(stream, until_over, NULL));
    MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)block, 1, MIB, stream));
    MUST((CUresult)segalloc_free(block));
    CUstream other;
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    EXPECT(segalloc_malloc_on(160 * MIB, other) == NULL);
    over = true;
    MUST(cuCtxSynchronize());
}

static atomic_bool capturing;

static void *capture(void *unused)
{
    CUgraph graph;
    CUstream own;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_RELAXED));
    capturing = true;
    until_over(NULL);
    MUST(cuStreamEndCapture(own, &graph));
    return unused;
}

/* Freed while another thread captures a graph: nothing can be asked about work then. */
static void in_a_capture(void)
{
    pthread_t thread;
    CUdeviceptr block = take(150 * MIB);
    EXPECT(pthread_create(&thread, NULL, capture, NULL) == 0);
    while (!capturing)
        usleep(1000);
    MUST(cuMemFree_v2(block));
    run_out(160 * MIB);
    over = true;
    EXPECT(pthread_join(thread, NULL) == 0);
}

/* From a pool that keeps what is freed. */
static CUdeviceptr take_from_pool(size_t bytes)
{
    CUdeviceptr address = 0;
    CUmemoryPool pool;
    cuuint64_t all = UINT64_MAX;
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    MUST(cuMemAllocAsync(&address, bytes, stream));
    MUST(cuStreamSynchronize(stream));
    return address;
}

static void keep_in_pool(size_t bytes)
{
    MUST(cuMemFreeAsync(take_from_pool(bytes), stream));
    MUST(cuStreamSynchronize(stream));
}

static void own_physical(void)
{
    take_physical(150 * MIB);
    take(20 * MIB);
    run_out(160 * MIB);
}

/* The first allocation of the process, by a request that is larger than any card. */
static void own_physical_first(void)
{
    take_physical(150 * MIB);
    run_out(250 * MIB);
}

static void own_pool(void)
{
    take_from_pool(150 * MIB);
    take(20 * MIB);
    run_out(160 * MIB);
}

static void own_idle_pool(void)
{
    keep_in_pool(150 * MIB);
    take(20 * MIB);
    run_out(160 * MIB);
}

static void own_in_pool_and_physical(void)
{
    take_physical(50 * MIB);
    keep_in_pool(100 * MIB);
    take(20 * MIB);
    run_out(200 * MIB);
}

static void own_and_too_big(void)
{
    take_physical(100 * MIB);
    take(20 * MIB);
    run_out(250 * MIB);
}

static void own_and_fragmented(void)
{
    take_physical(100 * MIB);
    comb(3 * MIB / 2, 80, 40 * MIB);
}

/* This process holds 90 MiB itself, and is to have as much as fits without that, or not even then. */
static void takes_beside_others(void)
{
    take_physical(90 * MIB);
    run_out(190 * MIB);
}

static void own_and_one(void)
{
    beside(1, 60 * MIB, takes_beside_others);
}

static void takes_little_beside_others(void)
{
    take_physical(40 * MIB);
    run_out(150 * MIB);
}

static void one_and_own(void)
{
    beside(1, 120 * MIB, takes_little_beside_others);
}

static void takes_both_beside_others(void)
{
    take_physical(60 * MIB);
    run_out(220 * MIB);
}

static void one_and_own_together(void)
{
    beside(1, 104 * MIB, takes_both_beside_others);
}

static void idle_pool_and_one(void)
{
    beside(1, 60 * MIB, own_idle_pool);
}

static void own_and_limit(void)
{
    take_physical(200 * MIB);
    run_out(150 * MIB);
}

/* The limit is short, and so is the device beside other calls. */
static void limit_and_own(void)
{
    take_physical(116 * MIB);
    take(25 * MIB);
    run_out(150 * MIB);
}

static void takes_with_limit(void)
{
    take(25 * MIB);
    run_out(150 * MIB);
}

static void limit_and_one(void)
{
    beside(1, 116 * MIB, takes_with_limit);
}

/* Allocated in a capture and freed after it, while the graph is alive. */
static void take_in_graph(size_t bytes)
{
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUdeviceptr one = take(bytes / 2), other = take(bytes / 2);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuMemFree_v2(one));
    MUST(cuMemFree_v2(other));
}

static void graph(void)
{
    take_in_graph(150 * MIB);
    take(30 * MIB);
    run_out(160 * MIB);
}

static void graph_and_own(void)
{
    take_physical(90 * MIB);
    take_in_graph(100 * MIB);
    run_out(200 * MIB);
}

static void takes_in_graph(void)
{
    take_in_graph(100 * MIB);
    run_out(200 * MIB);
}

static void graph_and_one(void)
{
    beside(1, 90 * MIB, takes_in_graph);
}

static void graph_and_limit(void)
{
    take_in_graph(100 * MIB);
    run_out(200 * MIB);
}

/* This process has served nothing yet, and the driver's own pool is refused. */
static void is_refused_by_pool(void)
{
    CUdeviceptr address;
    EXPECT(cuMemAllocAsync(&address, 180 * MIB, stream) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void pool_beside_one(void)
{
    beside(1, 120 * MIB, is_refused_by_pool);
}

/* This thread was refused once, and that was made good. The other one is refused later, makes do with less after this thread was
   served `bytes`, or not at all. */
static pthread_barrier_t together;
static bool makes_do;

static void *is_refused(void *unused)
{
    MUST(cuCtxSetCurrent(context));
    run_out(400 * MIB);
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&together);
    if (makes_do)
        take(200 * MIB);
    return unused;
}

static void beside_a_refused_thread(size_t bytes)
{
    pthread_t thread;
    EXPECT(pthread_barrier_init(&together, NULL, 2) == 0);
    run_out(300 * MIB);
    MUST(cuMemFree_v2(take(200 * MIB)));
    EXPECT(pthread_create(&thread, NULL, is_refused, NULL) == 0);
    pthread_barrier_wait(&together);
    MUST(cuMemFree_v2(take(bytes)));
    pthread_barrier_wait(&together);
    EXPECT(pthread_join(thread, NULL) == 0);
}

static void refused_thread_makes_do(void)
{
    makes_do = true;
    beside_a_refused_thread(6 * MIB);
}

static void refused_thread_fails(void)
{
    beside_a_refused_thread(200 * MIB);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
        bool starts; /* by itself, after others have */
    } programs[] = {
        {"one_tensor", one_tensor, false},
        {"grows", grows, false},
        {"comb_of_pages", comb_of_pages, false},
        {"comb_of_segments", comb_of_segments, false},
        {"above_limit", above_limit, false},
        {"above_own_limit", above_own_limit, false},
        {"beside_one", beside_one, true},
        {"takes_first", takes_first, false},
        {"first_by_one_physical", first_by_one_physical, true},
        {"beside_two", beside_two, true},
        {"beside_and_fragmented", beside_and_fragmented, true},
        {"beside_and_too_big", beside_and_too_big, true},
        {"behind_a_kernel", behind_a_kernel, false},
        {"in_a_capture", in_a_capture, false},
        {"beside_own_physical", own_physical, false},
        {"beside_own_physical_first", own_physical_first, false},
        {"beside_own_pool", own_pool, false},
        {"beside_own_idle_pool", own_idle_pool, false},
        {"own_in_pool_and_physical", own_in_pool_and_physical, false},
        {"own_and_too_big", own_and_too_big, false},
        {"own_and_fragmented", own_and_fragmented, false},
        {"own_and_one", own_and_one, true},
        {"one_and_own", one_and_own, true},
        {"one_and_own_together", one_and_own_together, true},
        {"idle_pool_and_one", idle_pool_and_one, true},
        {"own_and_limit", own_and_limit, false},
        {"limit_and_own", limit_and_own, false},
        {"limit_and_one", limit_and_one, true},
        {"graph", graph, false},
        {"graph_and_own", graph_and_own, false},
        {"graph_and_one", graph_and_one, true},
        {"graph_and_limit", graph_and_limit, false},
        {"pool_beside_one", pool_beside_one, true},
        {"refused_thread_makes_do", refused_thread_makes_do, false},
        {"refused_thread_fails", refused_thread_fails, false},
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        if (argc != 2 || strcmp(argv[1], programs[i].name) != 0)
            continue;
        if (!programs[i].starts)
            start();
        programs[i].run();
        return failures != 0;
    }
    return 2;
}
