/* A page at two addresses: one kernel writes by the first, and the next kernel reads by the second, in every way to read. */
#include <stdio.h>

#include "probe.h"

enum { BLOCKS = 264 };

/* A page at two addresses, and a word in which kernels count what differs. */
struct twice {
    struct probe_twice page;
    CUdeviceptr bad;
    uint64_t words;
};

static bool twice_make(struct twice *ret)
{
    NEED(probe_twice_map(&ret->page));
    NEED(probe.cu.cuMemAlloc_v2(&ret->bad, 4096));
    NEED(probe.cu.cuMemsetD8_v2(ret->bad, 0, 4096));
    NEED(probe.cu.cuCtxSynchronize()); /* the host need not wait for a set, and the load's stream does not */
    ret->words = (probe.quick ? 65536 : probe.granule) / 4;
    return true;
}

static bool twice_end(struct twice *twice, long rounds)
{
    uint32_t bad = 0;
    NEED(probe.cu.cuCtxSynchronize());
    NEED(probe.cu.cuMemcpyDtoH_v2(&bad, twice->bad, sizeof bad));
    probe_say("'rounds': %ld, 'words': %llu, 'wrong': %u", rounds, (unsigned long long)twice->words, bad);
    NEED(probe_twice_unmap(&twice->page));
    NEED(probe.cu.cuMemFree_v2(twice->bad));
    return true;
}

static CUresult alias_put(CUfunction kernel, CUdeviceptr at, uint64_t words, uint32_t value, CUstream stream)
{
    void *parameters[] = {&at, &words, &value};
    return probe_launch(kernel, BLOCKS, stream, parameters);
}

static CUresult alias_judge(CUfunction kernel, CUdeviceptr at, const struct twice *twice, uint32_t value,
    CUstream stream)
{
    CUdeviceptr bad = twice->bad;
    uint64_t words = twice->words;
    void *parameters[] = {&at, &words, &value, &bad};
    return probe_launch(kernel, BLOCKS, stream, parameters);
}

static long alias_rounds(long many)
{
    return probe.quick ? 3 : many;
}

#define KERNELS(...)                                                                                   \
    do {                                                                                               \
        const CUfunction wanted_[] = {__VA_ARGS__};                                                    \
        for (size_t i_ = 0; i_ < sizeof wanted_ / sizeof *wanted_; i_++)                               \
            if (!wanted_[i_])                                                                          \
                return probe_skip("its kernels want nvcc, and a device that has what they use");       \
    } while (0)

/* Writes by one address and reads by the other and back, in one stream, without the host. The reader's caches have the
   words of the round before, so that there is something stale to be hit. */
static bool alias_by_turns(CUfunction reader)
{
    const struct probe_kernels *k = &probe.kernels;
    struct twice twice;
    KERNELS(k->put, reader);
    if (!twice_make(&twice))
        return false;
    uint32_t value = 0;
    NEED(alias_put(k->put, twice.page.a, twice.words, value, probe.load));
    for (long i = 0; i < alias_rounds(20000); i++) {
        NEED(alias_judge(reader, twice.page.b, &twice, value, probe.load));
        value = (uint32_t)i * 2654435761u;
        NEED(alias_put(k->put, twice.page.a, twice.words, value, probe.load));
        NEED(alias_judge(reader, twice.page.b, &twice, value, probe.load));
        NEED(alias_put(k->put, twice.page.b, twice.words, ~value, probe.load));
        NEED(alias_judge(reader, twice.page.a, &twice, ~value, probe.load));
        value = ~value;
    }
    return twice_end(&twice, alias_rounds(20000));
}

/* The reader finds each word wrong where the writer wrote others; else no row of this group says anything. */
bool alias_control(void)
{
    const struct probe_kernels *k = &probe.kernels;
    struct twice twice;
    uint32_t bad = 0;
    KERNELS(k->put, k->judge);
    if (!twice_make(&twice))
        return false;
    NEED(alias_put(k->put, twice.page.a, twice.words, 1, probe.load));
    NEED(alias_judge(k->judge, twice.page.b, &twice, 2, probe.load));
    NEED(probe.cu.cuCtxSynchronize());
    NEED(probe.cu.cuMemcpyDtoH_v2(&bad, twice.bad, sizeof bad));
    probe_say("'found': %u, 'of': %llu", bad, (unsigned long long)twice.words);
    NEED(probe.cu.cuMemsetD8_v2(twice.bad, 0, 4));
    return twice_end(&twice, 1);
}

bool alias_volatile(void)
{
    return alias_by_turns(probe.kernels.judge);
}

bool alias_cached(void)
{
    return alias_by_turns(probe.kernels.judge_cached);
}

bool alias_read_only(void)
{
    return alias_by_turns(probe.kernels.judge_read_only);
}

bool alias_asynchronous(void)
{
    return alias_by_turns(probe.kernels.judge_asynchronous);
}

bool alias_bulk(void)
{
    return alias_by_turns(probe.kernels.judge_bulk);
}

bool alias_copies(void)
{
    const struct probe_kernels *k = &probe.kernels;
    struct twice twice;
    CUdeviceptr copy;
    KERNELS(k->put, k->judge);
    if (!twice_make(&twice))
        return false;
    NEED(probe.cu.cuMemAlloc_v2(&copy, probe.granule));
    for (long i = 0; i < alias_rounds(10000); i++) {
        uint32_t value = (uint32_t)i * 2654435761u;
        NEED(alias_put(k->put, twice.page.a, twice.words, value, probe.load));
        NEED(probe.cu.cuMemcpyDtoDAsync_v2(copy, twice.page.b, twice.words * 4, probe.load));
        NEED(alias_judge(k->judge, copy, &twice, value, probe.load));
        NEED(probe.cu.cuMemsetD32Async(twice.page.a, 0, twice.words, probe.load));
        NEED(probe.cu.cuMemcpyDtoDAsync_v2(twice.page.b, copy, twice.words * 4, probe.load));
        NEED(alias_judge(k->judge_cached ? k->judge_cached : k->judge, twice.page.a, &twice, value, probe.load));
    }
    NEED(probe.cu.cuCtxSynchronize());
    NEED(probe.cu.cuMemFree_v2(copy));
    return twice_end(&twice, alias_rounds(10000));
}

bool alias_graph(void)
{
    const struct probe_kernels *k = &probe.kernels;
    struct twice twice;
    CUgraph graph;
    CUgraphExec exec;
    KERNELS(k->put, k->judge_cached);
    if (!twice_make(&twice))
        return false;
    NEED(probe.cu.cuStreamBeginCapture_v2(probe.load, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    NEED(alias_put(k->put, twice.page.a, twice.words, 0x5bd1e995u, probe.load));
    NEED(alias_judge(k->judge_cached, twice.page.b, &twice, 0x5bd1e995u, probe.load));
    NEED(alias_put(k->put, twice.page.b, twice.words, 0xa42e166au, probe.load));
    NEED(alias_judge(k->judge_cached, twice.page.a, &twice, 0xa42e166au, probe.load));
    NEED(probe.cu.cuStreamEndCapture(probe.load, &graph));
    NEED(probe.cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (long i = 0; i < alias_rounds(20000); i++)
        NEED(probe.cu.cuGraphLaunch(exec, probe.load));
    NEED(probe.cu.cuCtxSynchronize());
    NEED(probe.cu.cuGraphExecDestroy(exec));
    NEED(probe.cu.cuGraphDestroy(graph));
    return twice_end(&twice, alias_rounds(20000));
}

static CUresult alias_judge_early(CUdeviceptr at, const struct twice *twice, uint32_t value)
{
    CUdeviceptr bad = twice->bad;
    uint64_t words = twice->words;
    void *parameters[] = {&at, &words, &value, &bad};
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value = {.programmaticStreamSerializationAllowed = 1}};
    CUlaunchConfig config = {.gridDimX = BLOCKS, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 256, .blockDimY = 1,
        .blockDimZ = 1, .hStream = probe.load, .attrs = &early, .numAttrs = 1};
    return probe.cu.cuLaunchKernelEx(&config, probe.kernels.judge_programmatic, parameters, NULL);
}

bool alias_programmatic(void)
{
    const struct probe_kernels *k = &probe.kernels;
    struct twice twice;
    HAVE(cuLaunchKernelEx);
    KERNELS(k->put_programmatic, k->judge_programmatic);
    if (!twice_make(&twice))
        return false;
    for (long i = 0; i < alias_rounds(20000); i++) {
        uint32_t value = (uint32_t)i * 2654435761u;
        NEED(alias_put(k->put_programmatic, twice.page.a, twice.words, value, probe.load));
        NEED(alias_judge_early(twice.page.b, &twice, value));
        NEED(alias_put(k->put_programmatic, twice.page.b, twice.words, ~value, probe.load));
        NEED(alias_judge_early(twice.page.a, &twice, ~value));
    }
    return twice_end(&twice, alias_rounds(20000));
}

bool alias_streams(void)
{
    const struct probe_kernels *k = &probe.kernels;
    struct twice twice;
    CUstream other;
    CUevent event;
    KERNELS(k->put, k->judge_cached);
    if (!twice_make(&twice))
        return false;
    NEED(probe.cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(probe.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (long i = 0; i < alias_rounds(10000); i++) {
        uint32_t value = (uint32_t)i * 2654435761u;
        NEED(alias_put(k->put, twice.page.a, twice.words, value, probe.load));
        NEED(probe_join(probe.load, other, event));
        NEED(alias_judge(k->judge_cached, twice.page.b, &twice, value, other));
        NEED(alias_put(k->put, twice.page.b, twice.words, ~value, other));
        NEED(probe_join(other, probe.load, event));
        NEED(alias_judge(k->judge_cached, twice.page.a, &twice, ~value, probe.load));
    }
    NEED(probe.cu.cuCtxSynchronize());
    NEED(probe.cu.cuStreamDestroy_v2(other));
    NEED(probe.cu.cuEventDestroy_v2(event));
    return twice_end(&twice, alias_rounds(10000));
}

static CUresult alias_put_part(CUdeviceptr at, uint64_t words, uint32_t value, uint32_t sector, uint32_t which,
    CUstream stream)
{
    void *parameters[] = {&at, &words, &value, &sector, &which};
    return probe_launch(probe.kernels.put_part, BLOCKS, stream, parameters);
}

/* Sectors of 256, 128, 64 and 32 bytes, one half of them by each address. */
bool alias_sewn(void)
{
    const struct probe_kernels *k = &probe.kernels;
    struct twice twice;
    CUstream other;
    CUevent event;
    KERNELS(k->put_part, k->judge_cached);
    if (!twice_make(&twice))
        return false;
    NEED(probe.cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(probe.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (long i = 0; i < alias_rounds(10000); i++) {
        uint32_t value = (uint32_t)i * 2654435761u, sector = 64u >> (i % 4);
        NEED(probe_join(probe.load, other, event));
        NEED(alias_put_part(twice.page.a, twice.words, value, sector, 0, probe.load));
        NEED(alias_put_part(twice.page.b, twice.words, value, sector, 1, other));
        NEED(probe_join(other, probe.load, event));
        NEED(alias_judge(k->judge_cached, twice.page.a, &twice, value, probe.load));
        NEED(alias_judge(k->judge_cached, twice.page.b, &twice, value, probe.load));
    }
    NEED(probe.cu.cuCtxSynchronize());
    NEED(probe.cu.cuStreamDestroy_v2(other));
    NEED(probe.cu.cuEventDestroy_v2(event));
    return twice_end(&twice, alias_rounds(10000));
}

/* Words that were written by the first address are read by a third one. The page came there while a kernel ran on other
   memory, and the first is unmapped meanwhile. */
bool alias_moved(void)
{
    const struct probe_kernels *k = &probe.kernels;
    struct twice twice;
    CUdeviceptr third, neighbour;
    CUstream other;
    KERNELS(k->put, k->judge_cached, k->spin);
    if (!twice_make(&twice))
        return false;
    NEED(probe.cu.cuMemAddressReserve(&third, probe.granule, 0, 0, 0));
    NEED(probe.cu.cuMemAlloc_v2(&neighbour, probe.granule));
    NEED(probe.cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (long i = 0; i < alias_rounds(200); i++) {
        uint32_t value = (uint32_t)i * 2654435761u;
        NEED(alias_put(k->put, twice.page.a, twice.words, value, probe.load));
        NEED(probe.cu.cuStreamSynchronize(probe.load));
        NEED(probe_busy(other, 2000));
        NEED(alias_put(k->put, neighbour, twice.words, value, other));
        NEED(probe.cu.cuMemMap(third, probe.granule, 0, twice.page.handle, 0));
        NEED(probe_access(third, probe.granule));
        NEED(probe.cu.cuMemUnmap(twice.page.a, probe.granule));
        NEED(alias_judge(k->judge_cached, third, &twice, value, probe.load));
        NEED(probe.cu.cuMemMap(twice.page.a, probe.granule, 0, twice.page.handle, 0));
        NEED(probe_access(twice.page.a, probe.granule));
        NEED(alias_judge(k->judge_cached, twice.page.a, &twice, value, probe.load));
        NEED(alias_judge(k->judge, neighbour, &twice, value, other));
        NEED(probe.cu.cuCtxSynchronize());
        NEED(probe.cu.cuMemUnmap(third, probe.granule));
    }
    NEED(probe.cu.cuStreamDestroy_v2(other));
    NEED(probe.cu.cuMemFree_v2(neighbour));
    NEED(probe.cu.cuMemAddressFree(third, probe.granule));
    return twice_end(&twice, alias_rounds(200));
}
