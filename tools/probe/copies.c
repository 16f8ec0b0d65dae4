/* A page at two addresses, by sets and copies alone: no kernel of ours is needed. Each row counts words that were read wrong, as those of
   alias.c do.

   For example, 64 KiB are set to 7 by the first address. The next copy of the stream reads them by the second. The host finds a word that
   is not 7, because a cache of the copy engine had the old one. */
#include <stdlib.h>

#include "probe.h"

enum { ROW_BYTES = 512 };

/* The page, memory that is copied to, and what the host reads. */
struct copied {
    struct probe_twice page;
    CUdeviceptr copy;
    CUstream other;
    CUevent event;
    uint32_t *host;
    size_t bytes;
    long rounds;
    uint64_t wrong;
};

static bool copied_begin(struct copied *ret)
{
    *ret = (struct copied){.bytes = probe.quick ? 65536 : probe.granule, .rounds = probe.quick ? 8 : 64};
    HAVE(cuMemCreate);
    HAVE(cuMemcpyDtoHAsync_v2);
    ret->host = calloc(1, ret->bytes);
    if (!ret->host)
        return probe_refused("memory of the host", CUDA_ERROR_OUT_OF_MEMORY);
    NEED(probe_twice_map(&ret->page));
    NEED(probe.cu.cuMemAlloc_v2(&ret->copy, ret->bytes));
    NEED(probe.cu.cuStreamCreate(&ret->other, CU_STREAM_NON_BLOCKING));
    NEED(probe.cu.cuEventCreate(&ret->event, CU_EVENT_DISABLE_TIMING));
    return true;
}

/* Says what was found. The row's process keeps the page until it ends, where something failed before. */
static bool copied_end(struct copied *copied)
{
    NEED(probe.cu.cuCtxSynchronize());
    probe_say("'rounds': %ld, 'words': %zu, 'wrong': %llu", copied->rounds, copied->bytes / 4,
        (unsigned long long)copied->wrong);
    NEED(probe_twice_unmap(&copied->page));
    NEED(probe.cu.cuMemFree_v2(copied->copy));
    NEED(probe.cu.cuStreamDestroy_v2(copied->other));
    NEED(probe.cu.cuEventDestroy_v2(copied->event));
    free(copied->host);
    return true;
}

static CUresult copied_set(const struct copied *copied, CUdeviceptr at, uint32_t value, CUstream stream)
{
    return ASK(cuMemsetD32Async, at, value, copied->bytes / 4, stream);
}

static void copied_count(struct copied *copied, uint32_t value)
{
    for (size_t i = 0; i < copied->bytes / 4; i++)
        copied->wrong += copied->host[i] != value;
}

/* Reads `at` by a copy on the device, and once more by a copy to the host, in the order of `stream`; waits for them. */
static bool copied_judge(struct copied *copied, CUdeviceptr at, uint32_t value, CUstream stream)
{
    NEED(probe.cu.cuMemcpyDtoDAsync_v2(copied->copy, at, copied->bytes, stream));
    NEED(probe.cu.cuMemcpyDtoHAsync_v2(copied->host, copied->copy, copied->bytes, stream));
    NEED(probe.cu.cuStreamSynchronize(stream));
    copied_count(copied, value);
    NEED(probe.cu.cuMemcpyDtoHAsync_v2(copied->host, at, copied->bytes, stream));
    NEED(probe.cu.cuStreamSynchronize(stream));
    copied_count(copied, value);
    return true;
}

/* Writes by one address and reads by the other, in turns. Each of the two is written on a stream of its own, which may be
   the same: the reader's stream is ordered after the writer's. */
static bool copied_by_turns(struct copied *copied, CUstream of_a, CUstream of_b)
{
    for (long i = 0; i < copied->rounds; i++) {
        uint32_t value = (uint32_t)i * 2654435761u + 1;
        NEED(copied_set(copied, copied->page.a, value, of_a));
        if (of_a != of_b)
            NEED(probe_join(of_a, of_b, copied->event));
        if (!copied_judge(copied, copied->page.b, value, of_b))
            return false;
        NEED(copied_set(copied, copied->page.b, ~value, of_b));
        if (of_a != of_b)
            NEED(probe_join(of_b, of_a, copied->event));
        if (!copied_judge(copied, copied->page.a, ~value, of_a))
            return false;
    }
    return true;
}

bool selftest_copied(void)
{
    struct copied copied;
    return copied_begin(&copied) && copied_by_turns(&copied, probe.load, probe.load) && copied_end(&copied);
}

bool selftest_copied_streams(void)
{
    struct copied copied;
    return copied_begin(&copied) && copied_by_turns(&copied, probe.load, copied.other) && copied_end(&copied);
}

/* Rows of 512 bytes: even ones by the first address, odd ones by the second, on two streams at once. */
bool selftest_copied_sewn(void)
{
    struct copied copied;
    if (!copied_begin(&copied))
        return false;
    HAVE(cuMemsetD2D32Async);
    size_t rows = copied.bytes / ROW_BYTES / 2, width = ROW_BYTES / 4;
    for (long i = 0; i < copied.rounds; i++) {
        uint32_t value = (uint32_t)i * 2654435761u + 1;
        NEED(probe.cu.cuMemsetD2D32Async(copied.page.a, 2 * ROW_BYTES, value, width, rows, probe.load));
        NEED(probe.cu.cuMemsetD2D32Async(copied.page.b + ROW_BYTES, 2 * ROW_BYTES, ~value, width, rows, copied.other));
        NEED(probe_join(copied.other, probe.load, copied.event));
        for (int by = 0; by < 2; by++) {
            NEED(probe.cu.cuMemcpyDtoHAsync_v2(copied.host, by ? copied.page.b : copied.page.a, copied.bytes,
                probe.load));
            NEED(probe.cu.cuStreamSynchronize(probe.load));
            for (size_t k = 0; k < copied.bytes / 4; k++)
                copied.wrong += copied.host[k] != (k / width % 2 ? ~value : value);
        }
    }
    return copied_end(&copied);
}

bool selftest_copied_graph(void)
{
    struct copied copied;
    CUgraph graph;
    CUgraphExec exec;
    const uint32_t first = 0x5bd1e995u, second = 0xa42e166au;
    HAVE(cuStreamBeginCapture_v2);
    if (!copied_begin(&copied))
        return false;
    NEED(probe.cu.cuStreamBeginCapture_v2(probe.load, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    NEED(copied_set(&copied, copied.page.a, first, probe.load));
    NEED(probe.cu.cuMemcpyDtoDAsync_v2(copied.copy, copied.page.b, copied.bytes / 2, probe.load));
    NEED(copied_set(&copied, copied.page.b, second, probe.load));
    NEED(probe.cu.cuMemcpyDtoDAsync_v2(copied.copy + copied.bytes / 2, copied.page.a, copied.bytes / 2, probe.load));
    NEED(probe.cu.cuStreamEndCapture(probe.load, &graph));
    NEED(probe.cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (long i = 0; i < copied.rounds; i++) {
        NEED(probe.cu.cuGraphLaunch(exec, probe.load));
        NEED(probe.cu.cuMemcpyDtoHAsync_v2(copied.host, copied.copy, copied.bytes, probe.load));
        NEED(probe.cu.cuStreamSynchronize(probe.load));
        for (size_t k = 0; k < copied.bytes / 4; k++)
            copied.wrong += copied.host[k] != (k < copied.bytes / 8 ? first : second);
    }
    NEED(probe.cu.cuGraphExecDestroy(exec));
    NEED(probe.cu.cuGraphDestroy(graph));
    return copied_end(&copied);
}

/* The page comes to a third address while copies are queued, and leaves its first. Its bytes are read there, and back at the first. */
bool selftest_copied_moved(void)
{
    struct copied copied;
    struct probe_work work;
    CUdeviceptr third;
    if (!copied_begin(&copied))
        return false;
    NEED(probe_work_make(2, &work));
    NEED(probe.cu.cuMemAddressReserve(&third, probe.granule, 0, 0, 0));
    for (long i = 0; i < copied.rounds; i++) {
        uint32_t value = (uint32_t)i * 2654435761u + 1;
        NEED(copied_set(&copied, copied.page.a, value, copied.other));
        NEED(probe.cu.cuStreamSynchronize(copied.other));
        NEED(probe_work_queue(&work, probe.load));
        NEED(probe.cu.cuMemMap(third, probe.granule, 0, copied.page.handle, 0));
        NEED(probe_access(third, probe.granule));
        NEED(probe.cu.cuMemUnmap(copied.page.a, probe.granule));
        if (!copied_judge(&copied, third, value, copied.other))
            return false;
        NEED(probe.cu.cuMemMap(copied.page.a, probe.granule, 0, copied.page.handle, 0));
        NEED(probe_access(copied.page.a, probe.granule));
        if (!copied_judge(&copied, copied.page.a, value, copied.other))
            return false;
        NEED(probe.cu.cuStreamSynchronize(probe.load));
        NEED(probe.cu.cuMemUnmap(third, probe.granule));
    }
    NEED(probe.cu.cuMemAddressFree(third, probe.granule));
    probe_work_end(&work);
    return copied_end(&copied);
}
