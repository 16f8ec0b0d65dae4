/* Programs with one mistake of their own each, for `check:guard`: MISTAKE is the name of one. The block that the mistake is
   about has BYTES bytes, is allocated in guarded_owner() and freed in guarded_end(). What the program notices of its
   mistake is printed: the last error of the driver, as a number. */
#include <stdbool.h>
#include <unistd.h>

#include "program.h"
#include "segalloc/segalloc.h"
#include "sim/extra.h"

enum { POLLS = 100, BYTES = 5000, SLOT = 5120 /* to the next multiple of 512 */, GRANULE = 2 << 20 };

static CUstream one, other;
static CUfunction kernel;
static segalloc_sim_touches_fn touches;
static CUresult last;

CUdeviceptr guarded_owner(CUstream stream);
void guarded_end(CUdeviceptr address, bool by_stream);
void guarded_context_end(CUcontext context);

APART CUdeviceptr guarded_owner(CUstream stream)
{
    CUdeviceptr address = 0;
    if (stream)
        address = (CUdeviceptr)(uintptr_t)malloc_on(BYTES, stream);
    else
        MUST(cuMemAlloc_v2(&address, BYTES));
    return address;
}

APART void guarded_end(CUdeviceptr address, bool by_stream)
{
    if (by_stream)
        MUST((CUresult)free_on((void *)(uintptr_t)address));
    else
        MUST(cuMemFree_v2(address));
}

APART void guarded_context_end(CUcontext context)
{
    MUST(cuCtxDestroy_v2(context));
}

/* A kernel that touches these bytes. */
static void launch(CUdeviceptr address, size_t bytes, bool writes, CUstream stream)
{
    touches(address, bytes, writes);
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

/* The end of work that is a mistake: the driver's answer is what the program sees. */
static void see(CUstream stream)
{
    last = cuStreamSynchronize(stream);
}

/* The pages go once an event over the context has passed, which is some time after the stream is idle. */
static void settle(CUstream stream)
{
    for (int i = 0; i < POLLS; i++) {
        MUST(cuStreamSynchronize(stream));
        if (i)
            usleep(1000);
    }
}

static CUdeviceptr freed(CUstream stream)
{
    CUdeviceptr address = guarded_owner(stream);
    launch(address, BYTES, true, stream ? stream : one);
    guarded_end(address, stream != NULL);
    if (stream)
        settle(stream);
    return address;
}

static void none(void)
{
    for (int i = 0; i < 40; i++) {
        CUdeviceptr address = guarded_owner(i % 3 ? one : NULL);
        launch(address, BYTES, true, one);
        MUST(cuMemsetD8Async(address + BYTES - 1, 1, 1, one));
        guarded_end(address, i % 3);
    }
    see(one);
}

static void read_after_free(void)
{
    launch(freed(one) + 100, 4, false, one);
    see(one);
}

static void write_after_free(void)
{
    launch(freed(one), BYTES, true, one);
    see(one);
}

static void write_after_free_elsewhere(void)
{
    launch(freed(one) + BYTES - 1, 1, true, other);
    see(other);
}

static void plain_read_after_free(void)
{
    launch(freed(NULL), BYTES, false, one);
    see(one);
}

static void overrun_past_slack(void)
{
    CUdeviceptr address = guarded_owner(one);
    launch(address, SLOT + 1, true, one);
    see(one);
}

/* The last byte that may be written and is nobody's. */
static void overrun_into_slack(void)
{
    CUdeviceptr address = guarded_owner(one);
    MUST(cuMemsetD8Async(address, 1, SLOT, one));
    guarded_end(address, true);
    see(one);
}

static void overrun_by_1(void)
{
    CUdeviceptr address = guarded_owner(NULL);
    MUST(cuMemsetD8_v2(address, 1, BYTES + 1));
    guarded_end(address, false);
}

static void graph_after_free(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr address = guarded_owner(one);
    MUST(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(address, BYTES, true, other);
    MUST(cuStreamEndCapture(other, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    guarded_end(address, true);
    settle(one);
    MUST(cuGraphLaunch(exec, one));
    see(one);
}

static void set_after_free(void)
{
    last = cuMemsetD8Async(freed(one) + 8, 1, 16, one);
}

static void copy_after_free(void)
{
    char bytes[16];
    last = cuMemcpyDtoH_v2(bytes, freed(one), sizeof bytes);
}

/* The memory is still there: the work before the free is not known to be over. */
static void set_at_once(void)
{
    CUdeviceptr address = guarded_owner(one);
    launch(address, BYTES, true, one);
    guarded_end(address, true);
    last = cuMemsetD8Async(address, 1, BYTES, one);
    (void)cuStreamSynchronize(one);
}

static void double_free(void)
{
    last = (CUresult)free_on((void *)(uintptr_t)freed(one));
}

static void plain_double_free(void)
{
    last = cuMemFree_v2(freed(NULL));
}

static void free_of_the_middle(void)
{
    last = cuMemFree_v2(guarded_owner(one) + 512);
}

/* Nobody allocates or frees after it: the address is of the block that was freed long ago. */
static void read_long_after_free(void)
{
    CUdeviceptr address = freed(one);
    for (int i = 0; i < 900; i++)
        guarded_end(guarded_owner(NULL), false);
    launch(address, 4, false, one);
    see(one);
}

/* What a program asks about its memory, of a guarded block as of any other. */
static void questions(void)
{
    CUdeviceptr address = guarded_owner(one), base = 0, start = 0;
    size_t bytes = 0, range = 0;
    CUcontext context = NULL, of_block = NULL;
    unsigned type = 0;
    int device = -1;
    unsigned long long id = 0;
    CUpointer_attribute attribute[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    CUdeviceptr first = 0;
    int ordinal = -1;
    void *data[] = {&first, &ordinal};
    CUmemGenericAllocationHandle handle;
    CUipcMemHandle ipc;
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemGetAddressRange_v2(&base, &bytes, address + 100));
    MUST(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + BYTES - 1));
    MUST(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
    MUST(cuPointerGetAttribute(&of_block, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    MUST(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    MUST(cuPointerGetAttributes(2, attribute, data, address + 7));
    MUST(cuCtxGetCurrent(&context));
    MUST(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address));
    bool good = base == address && bytes == BYTES && start == address && range == BYTES && of_block == context &&
                type == CU_MEMORYTYPE_DEVICE && device == 0 && id && first == address && ordinal == 0 &&
                (address + SLOT) % GRANULE == 0 && cuMemUnmap(address, SLOT) == CUDA_ERROR_INVALID_VALUE &&
                cuMemSetAccess(address, SLOT, &access, 1) == CUDA_ERROR_INVALID_VALUE &&
                cuIpcGetMemHandle(&ipc, address) != CUDA_SUCCESS;
    MUST(cuMemRelease(handle));
    guarded_end(address, true);
    MUST(cuStreamSynchronize(one));
    good &= cuMemGetAddressRange_v2(&base, &bytes, address) == CUDA_ERROR_NOT_FOUND &&
            cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) == CUDA_ERROR_INVALID_VALUE;
    printf("%s\n", good ? "good" : "bad");
}

/* Memory comes back: a thousand guarded blocks one after the other, and then as much as there was at first. */
static void memory_comes_back(void)
{
    size_t before, after, total;
    guarded_end(guarded_owner(NULL), false);
    MUST(cuMemGetInfo_v2(&before, &total));
    for (int i = 0; i < 3000; i++) {
        CUdeviceptr address = guarded_owner(i % 2 ? one : NULL);
        launch(address, BYTES, true, one);
        guarded_end(address, i % 2);
    }
    MUST(cuCtxSynchronize());
    guarded_end(guarded_owner(NULL), false);
    MUST(cuCtxSynchronize());
    MUST(cuMemGetInfo_v2(&after, &total));
    printf("%s\n", after >= before ? "good" : "bad");
}

/* Blocks stay beyond the share that guards may have: others are served as usual. */
static void all_stay(void)
{
    static CUdeviceptr block[200];
    for (int i = 0; i < 200; i++) {
        block[i] = guarded_owner(one);
        launch(block[i], BYTES, true, one);
    }
    for (int i = 0; i < 200; i++)
        guarded_end(block[i], true);
    see(one);
}

/* A block is allocated within a capture, and one from before is freed in it. */
static void captured(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr before = guarded_owner(one);
    launch(before, BYTES, true, one);
    MUST(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUdeviceptr within = guarded_owner(one);
    launch(before, BYTES, true, one);
    launch(within, BYTES, true, one);
    guarded_end(before, true);
    MUST(cuStreamEndCapture(one, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        MUST(cuGraphLaunch(exec, one)); /* both are the graph's */
    MUST(cuStreamSynchronize(one));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    guarded_end(within, true);
    guarded_end(guarded_owner(one), true);
    see(one);
}

/* Two contexts of a device, and their ends. */
static void contexts(void)
{
    CUcontext first, second;
    CUstream stream;
    MUST(cuCtxGetCurrent(&first));
    MUST(cuCtxCreate_v2(&second, 0, 0));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr kept = guarded_owner(NULL), ended = guarded_owner(NULL);
    MUST(cuMemsetD8Async(kept, 1, BYTES, stream));
    MUST(cuMemsetD8Async(ended, 1, BYTES, stream));
    guarded_end(kept, false);
    MUST(cuCtxDestroy_v2(second)); /* `ended` goes with it */
    MUST(cuCtxSetCurrent(first));
    for (int i = 0; i < 20; i++) {
        CUdeviceptr address = guarded_owner(one);
        launch(address, BYTES, true, one);
        guarded_end(address, true);
        MUST(cuStreamSynchronize(one));
    }
    see(one);
}

/* The context has gone, and its memory with it. */
static void free_after_context(void)
{
    CUcontext first, second;
    MUST(cuCtxGetCurrent(&first));
    MUST(cuCtxCreate_v2(&second, 0, 0));
    CUdeviceptr address = guarded_owner(NULL);
    guarded_context_end(second);
    MUST(cuCtxSetCurrent(first));
    last = cuMemFree_v2(address);
}

/* Two frees after the end of a context, at two places: the first one is of a block that is not guarded. */
static void frees_after_contexts(void)
{
    CUcontext first, second, third;
    CUdeviceptr plain;
    MUST(cuCtxGetCurrent(&first));
    MUST(cuCtxCreate_v2(&third, 0, 0));
    CUdeviceptr address = guarded_owner(NULL);
    MUST(cuCtxCreate_v2(&second, 0, 0));
    MUST(cuMemAlloc_v2(&plain, BYTES + 1));
    guarded_context_end(second);
    (void)cuMemFree_v2(plain);
    guarded_context_end(third);
    MUST(cuCtxSetCurrent(first));
    last = cuMemFree_v2(address);
}

/* The address is none of ours: the program has reserved it and mapped nothing there. */
static void unmapped(void)
{
    CUdeviceptr address;
    CUdeviceptr block = guarded_owner(one); /* so that the library has begun */
    MUST(cuMemAddressReserve(&address, 16 * GRANULE, 0, 0, 0)); /* its middle is far from the block */
    launch(block, BYTES, true, one);
    launch(address + 8 * GRANULE + 64, 4, false, one);
    see(one);
}

/* 20 blocks are guarded, and less is missing than they take. */
static void full_beside_guards(void)
{
    size_t available, total;
    CUdeviceptr address;
    for (int i = 0; i < 20; i++)
        (void)guarded_owner(one);
    MUST(cuMemGetInfo_v2(&available, &total));
    last = cuMemAlloc_v2(&address, available + 8 * GRANULE);
}

/* Another device has access, before and after the block is allocated. */
static void peers(void)
{
    CUcontext here, there;
    CUstream far;
    MUST(cuCtxGetCurrent(&here));
    CUdeviceptr early = guarded_owner(one);
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    MUST(cuCtxSetCurrent(there));
    MUST(cuCtxEnablePeerAccess(here, 0));
    MUST(cuStreamCreate(&far, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxSetCurrent(here));
    CUdeviceptr late = guarded_owner(one);
    MUST(cuCtxSetCurrent(there));
    CUdeviceptr target;
    MUST(cuMemAlloc_v2(&target, BYTES));
    MUST(cuMemcpyDtoDAsync_v2(target, early, BYTES, far));
    MUST(cuMemcpyDtoDAsync_v2(late, target, BYTES, far));
    MUST(cuMemcpyPeer(early, here, target, there, BYTES));
    MUST(cuStreamSynchronize(far));
    MUST(cuMemFree_v2(target));
    MUST(cuCtxSetCurrent(here));
    guarded_end(early, true);
    guarded_end(late, true);
    see(one);
}

static const struct mistake {
    const char *name;
    void (*make)(void);
} mistakes[] = {
#define MISTAKE(name) \
    {                 \
#name, name   \
    }
    MISTAKE(none),
    MISTAKE(read_after_free),
    MISTAKE(write_after_free),
    MISTAKE(write_after_free_elsewhere),
    MISTAKE(plain_read_after_free),
    MISTAKE(overrun_past_slack),
    MISTAKE(overrun_into_slack),
    MISTAKE(overrun_by_1),
    MISTAKE(graph_after_free),
    MISTAKE(set_after_free),
    MISTAKE(copy_after_free),
    MISTAKE(set_at_once),
    MISTAKE(double_free),
    MISTAKE(plain_double_free),
    MISTAKE(free_of_the_middle),
    MISTAKE(read_long_after_free),
    MISTAKE(questions),
    MISTAKE(memory_comes_back),
    MISTAKE(all_stay),
    MISTAKE(captured),
    MISTAKE(contexts),
    MISTAKE(free_after_context),
    MISTAKE(frees_after_contexts),
    MISTAKE(unmapped),
    MISTAKE(full_beside_guards),
    MISTAKE(peers),
};

int main(int count, char **argument)
{
    CUmodule module;
    if (count != 2)
        return 2;
    begin_program();
    find("segalloc_sim_touches", &touches);
    MUST(cuModuleLoadData(&module, "no code is read"));
    MUST(cuModuleGetFunction(&kernel, module, "touch"));
    MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        if (strcmp(argument[1], mistakes[i].name) == 0) {
            mistakes[i].make();
            printf("%d\n", (int)last);
            return 0;
        }
    }
    return 2;
}
