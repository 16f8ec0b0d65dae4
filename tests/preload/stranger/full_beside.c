/* What the program has freed serves whatever it asks for next, in pieces or as one: pools, memory of graphs, physical
   allocations of its own, boxes. Not managed memory: more of that than is free can hang a GPU. */
#include "stranger_driver.h"

enum { MOST = 4000 };

static void *block[MOST];
static size_t most, few; /* of all that is free, and what of a block is set */

static void fill_and_free(size_t bytes)
{
    int count = 0;
    while (count < times(MOST, 500) && cudaMalloc(&block[count], bytes) == cudaSuccess)
        count++;
    (void)cudaGetLastError();
    for (int i = 0; i < count; i++)
        MUST(cudaFree(block[i]));
}

static void ordered(cudaStream_t stream)
{
    void *p;
    SHOW(cudaMallocAsync(&p, most, stream));
    MUST(cudaMemsetAsync(p, 1, few, stream));
    MUST(cudaFreeAsync(p, stream));
    MUST(cudaStreamSynchronize(stream));
}

static void of_a_graph(cudaStream_t stream, size_t piece)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t allocated, set, gone;
    struct cudaMemAllocNodeParams memory = {.poolProps = {.allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = 0}}, .bytesize = most};
    MUST(cudaGraphCreate(&graph, 0));
    MUST(cudaGraphAddMemAllocNode(&allocated, graph, NULL, 0, &memory));
    struct cudaMemsetParams params = {.dst = memory.dptr, .value = 2, .elementSize = 1, .width = few, .height = 1};
    MUST(cudaGraphAddMemsetNode(&set, graph, &allocated, 1, &params));
    MUST(cudaGraphAddMemFreeNode(&gone, graph, &set, 1, memory.dptr));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    SHOW(cudaGraphLaunch(exec, stream));
    MUST(cudaStreamSynchronize(stream));
    fill_and_free(piece);
    SHOW(cudaGraphLaunch(exec, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaDeviceGraphMemTrim(0));
}

static void of_its_own(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    TELL(cuMemCreate(&handle, most / (2 * MiB) * (2 * MiB), &prop, 0));
    NEED(cuMemRelease(handle));
}

static void plain(void)
{
    void *p;
    struct cudaPitchedPtr box;
    SHOW(cudaMalloc(&p, most));
    MUST(cudaMemset(p, 4, few));
    MUST(cudaFree(p));
    SHOW(cudaMalloc3D(&box, make_cudaExtent(16384, 64, most / 16384 / 64)));
    MUST(cudaFree(box.ptr));
}

/* All that is left beside memory of the program's own, as cudaMemGetInfo says, in one block. */
static void all_that_is_left(size_t piece)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    for (size_t own = 2 * MiB; own <= 32 * MiB; own *= 2) {
        CUmemGenericAllocationHandle handle;
        size_t left;
        void *p;
        fill_and_free(piece);
        NEED(cuMemCreate(&handle, own, &prop, 0));
        for (int i = 1; i <= 40; i++) /* some of each size, so that what is held lies in several pages */
            MUST(cudaMalloc(&block[i], (size_t)i * 50000));
        for (int i = 1; i <= 40; i++)
            MUST(cudaFree(block[i]));
        MUST(cudaDeviceSynchronize());
        MUST(cudaMemGetInfo(&left, NULL));
        SHOW(cudaMalloc(&p, left / (2 * MiB) * (2 * MiB)));
        MUST(cudaFree(p));
        NEED(cuMemRelease(handle));
    }
}

int main(void)
{
    static const size_t pieces[] = {MiB, 60000, 70000};
    size_t available;
    cudaStream_t stream;
    MUST(cudaMemGetInfo(&available, NULL));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    most = available / 4 * 3;
    few = most < 256 * MiB ? most : 256 * MiB;
    for (int i = 0; i < 4; i++) {
        size_t piece = i < 3 ? pieces[i] : most;
        fill_and_free(piece);
        ordered(stream);
        fill_and_free(piece);
        of_a_graph(stream, piece);
        fill_and_free(piece);
        of_its_own();
        fill_and_free(piece);
        plain();
        all_that_is_left(piece);
    }
    return 0;
}
