/* One of several processes on a card, told by its standard input what to do, a word a line:
     take MIB    allocates; says "taken", or "refused"
     create MIB, pool MIB, own MIB, graph MIB
                 the same by cuMemCreate, cudaMallocAsync, from a pool of its own, and a graph that allocates and is launched; for good
     captured MIB
                 the same as pool, in a capture, which takes nothing
     idle MIB    has the pool hold so many, which are given out to nobody
     give        frees what was taken last; says "given"
     tag T MIB   the same as take, of a tag, and fills it; says "taken", or "refused"
     whole       says whether what was taken last still has that filling: "whole", or "changed"
     hold        says how many MiB are reserved
     budget MIB  has the simulated driver say that the process is over its budget by as many; says "told"
     free        says how many MiB are free by cudaMemGetInfo
   A line that it doesn't know ends it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi_graph.h"
#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

enum { BLOCKS = 64, MIB_BYTES = 1 << 20 };

static int take_of_pool(const char *how, size_t bytes)
{
    static const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    static CUmemoryPool own;
    cuuint64_t all = UINT64_MAX;
    CUdeviceptr address;
    CUmemoryPool pool;
    CUstream stream;
    CUgraph graph;
    int result = 0;
    if (strcmp(how, "own") == 0) {
        result = own ? 0 : (int)cuMemPoolCreate(&own, &props);
        return result ? result : (int)cuMemAllocFromPoolAsync(&address, bytes, own, NULL);
    }
    if (strcmp(how, "captured") == 0) {
        result = (int)cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        result = result ? result : (int)cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        result = result ? result : (int)cuMemAllocAsync(&address, bytes, stream);
        return result ? result : (int)cuStreamEndCapture(stream, &graph);
    }
    if (strcmp(how, "idle") == 0) {
        result = (int)cuDeviceGetDefaultMemPool(&pool, 0);
        result = result ? result : (int)cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
        result = result ? result : (int)cuMemAllocAsync(&address, bytes, NULL);
        result = result ? result : (int)cuMemFreeAsync(address, NULL);
        return result ? result : (int)cuStreamSynchronize(NULL);
    }
    return (int)cuMemAllocAsync(&address, bytes, NULL);
}

/* As a program does that takes its memory from the driver itself. */
static int take_otherwise(const char *how, size_t bytes)
{
    static const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    if (strcmp(how, "create") == 0)
        return (int)cuMemCreate(&handle, bytes, &prop, 0);
    if (strcmp(how, "graph") != 0)
        return take_of_pool(how, bytes);
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = bytes};
    int result = (int)cuGraphCreate(&graph, 0);
    result = result ? result : (int)cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params);
    result = result ? result : (int)cuGraphInstantiateWithFlags(&exec, graph, 0);
    result = result ? result : (int)cuGraphLaunch(exec, NULL);
    return result ? result : (int)cuCtxSynchronize();
}

static int exceed_budget(uint64_t bytes)
{
    int (*tell)(int, uint64_t);
    void *symbol = dlsym(RTLD_DEFAULT, "segalloc_sim_over_budget");
    memcpy(&tell, &symbol, sizeof tell);
    return symbol ? tell(0, bytes) : -1;
}

static int take_tagged(const char *tag, void **ret, size_t bytes)
{
    int (*push)(const char *, unsigned), (*pop)(void);
    void *symbol = dlsym(RTLD_DEFAULT, "segalloc_tag_push");
    memcpy(&push, &symbol, sizeof push);
    symbol = dlsym(RTLD_DEFAULT, "segalloc_tag_pop");
    memcpy(&pop, &symbol, sizeof pop);
    *ret = NULL;
    EXPECT(push(tag, 0) == 0);
    int result = cudaMalloc(ret, bytes);
    EXPECT(pop() == 0);
    return result == cudaSuccess && cudaMemset(*ret, 0x5a, bytes) == cudaSuccess;
}

static int is_whole(const void *block, size_t bytes)
{
    unsigned char *host = malloc(bytes);
    size_t wrong = 0;
    EXPECT(cudaMemcpy(host, block, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    for (size_t i = 0; i < bytes; i++)
        wrong += host[i] != 0x5a;
    free(host);
    return wrong == 0;
}

int main(void)
{
    static void *blocks[BLOCKS];
    static size_t sizes[BLOCKS]; /* of those of a tag */
    int count = 0, size;
    char line[64], how[16];
    size_t available, total;
    if (cudaFree(NULL) != cudaSuccess)
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "tag %15s %d", how, &size) == 2 && count < BLOCKS) {
            sizes[count] = (size_t)size * MIB_BYTES;
            puts(take_tagged(how, &blocks[count], sizes[count]) ? "taken" : "refused");
            count += blocks[count] != NULL;
        } else if (sscanf(line, "budget %d", &size) == 1) {
            puts(exceed_budget((uint64_t)size * MIB_BYTES) == 0 ? "told" : "not told");
        } else if (strcmp(line, "whole\n") == 0 && count > 0) {
            puts(is_whole(blocks[count - 1], sizes[count - 1]) ? "whole" : "changed");
        } else if (sscanf(line, "take %d", &size) == 1 && count < BLOCKS) {
            int result = cudaMalloc(&blocks[count], (size_t)size * MIB_BYTES);
            count += result == cudaSuccess;
            puts(result == cudaSuccess ? "taken" : "refused");
        } else if (sscanf(line, "%15s %d", how, &size) == 2) {
            puts(take_otherwise(how, (size_t)size * MIB_BYTES) == 0 ? "taken" : "refused");
        } else if (strcmp(line, "free\n") == 0 && cudaMemGetInfo(&available, &total) == cudaSuccess) {
            printf("%zu\n", available / MIB_BYTES);
        } else if (strcmp(line, "give\n") == 0 && count > 0) {
            puts(cudaFree(blocks[--count]) == cudaSuccess ? "given" : "not given");
        } else if (strcmp(line, "hold\n") == 0) {
            printf("%llu\n", (unsigned long long)statistic(0, "reserved_bytes") / MIB_BYTES);
        } else {
            break;
        }
        fflush(stdout);
    }
    return failures;
}
