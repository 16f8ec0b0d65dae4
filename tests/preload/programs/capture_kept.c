/* Memory that was freed in a capture is had again as soon as the program could have it natively: the capture has failed, was
   abandoned, or its graph is gone. Whoever asks next gets it, however he asks and however often that happens. All but 64 MiB
   of the card is asked for in one piece, so nothing may be missing. */
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

enum { ROUNDS = 20, MIB_BYTES = 1 << 20 };
#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static const size_t inside_bytes = (size_t)1 << 30, most_bytes = (size_t)3900 << 20;

static CUdeviceptr kept; /* 64 MiB */

static CUstream stream_of(void)
{
    CUstream stream = NULL;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* Allocates and frees in a capture that is open from then on. */
static void begin(CUstream stream)
{
    CUdeviceptr inside;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemAlloc_v2(&inside, inside_bytes));
    MUST(cuMemsetD8Async(kept, 1, MIB_BYTES, stream)); /* natively the other one is freed by the launch */
    MUST(cuMemFree_v2(inside));
}

static void fails(void)
{
    CUstream stream = stream_of();
    CUgraph graph = NULL;
    begin(stream);
    EXPECT(cuStreamSynchronize(stream) != CUDA_SUCCESS);
    EXPECT(cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
    MUST(cuStreamDestroy_v2(stream));
}

static void is_abandoned(void)
{
    CUstream stream = stream_of();
    begin(stream);
    (void)cuStreamDestroy_v2(stream);
}

static void is_destroyed(void)
{
    CUstream stream = stream_of();
    CUgraph graph = NULL;
    begin(stream);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamDestroy_v2(stream));
}

/* The launch may still be running. */
static void is_launched_and_destroyed(void)
{
    CUstream stream = stream_of();
    CUgraph graph = NULL, clone;
    CUgraphExec exec;
    begin(stream);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphClone(&clone, graph));
    MUST(cuGraphInstantiateWithFlags(&exec, clone, 0));
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(clone));
    MUST(cuStreamDestroy_v2(stream));
}

/* All allocations of the program are in captures. */
static void follows_another(void)
{
    CUstream stream = stream_of();
    CUdeviceptr inside;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        CUgraph graph = NULL;
        MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(cuMemAlloc_v2(&inside, most_bytes));
        MUST(cuMemFree_v2(inside));
        MUST(cuStreamEndCapture(stream, &graph));
        MUST(cuGraphDestroy(graph));
    }
    MUST(cuStreamDestroy_v2(stream));
}

static void allocated(void)
{
    CUdeviceptr most;
    MUST(cuMemAlloc_v2(&most, most_bytes));
    MUST(cuMemFree_v2(most));
}

static bool launched; /* the last one was, so that work is queued */

/* The answer does not wait for what is queued. Nor does the driver say at once that it has destroyed a graph whose last launch
   is over. */
static void counted(void)
{
    size_t available, total;
    if (launched)
        MUST(cuCtxSynchronize());
    MUST(cuMemGetInfo_v2(&available, &total));
    for (int i = 0; i < 1000 && launched && available < most_bytes; i++) {
        usleep(1000);
        MUST(cuMemGetInfo_v2(&available, &total));
    }
    EXPECT(available >= most_bytes);
    allocated();
}

static void created(void)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    MUST(cuMemCreate(&handle, most_bytes, &prop, 0));
    MUST(cuMemRelease(handle));
}

static void from_a_pool(void)
{
    CUdeviceptr most;
    MUST(cuMemAllocAsync(&most, most_bytes, NULL));
    MUST(cuMemFreeAsync(most, NULL));
    MUST(cuCtxSynchronize());
}

int main(int count, char **word)
{
    const bool gaps = count > 1 && strcmp(word[1], "gaps") == 0; /* no capture follows another at once */
    static void (*const end[])(void) = {fails, is_abandoned, is_destroyed, is_launched_and_destroyed, follows_another};
    static void (*const have[])(void) = {allocated, counted, created, from_a_pool};
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&kept, 64 * MIB_BYTES));
    for (size_t i = 0; i < sizeof end / sizeof *end - gaps; i++) {
        for (size_t j = 0; j < sizeof have / sizeof *have; j++) {
            for (int round = 0; round < ROUNDS && !failures; round++) {
                end[i]();
                launched = end[i] == is_launched_and_destroyed;
                have[j]();
                if (failures)
                    fprintf(stderr, "end %zu, ways to have it %zu, round %d\n", i, j, round);
            }
        }
    }
    return failures != 0;
}
