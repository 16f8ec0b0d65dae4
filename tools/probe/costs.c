/* Costs of the driver's calls: by size, by the number of handles and of streams, with the device idle and with a
   kernel running. */
#include <stdio.h>
#include <stdlib.h>

#include "probe.h"

enum { BUSY_US = 30000, SIZES_MAX = 8, STREAMS_MAX = 200 };

/* Times of one call. `outlived`: after how many of them the kernel that was running still ran. */
struct sample {
    struct probe_times times;
    int outlived;
};

static void costs_show(const char *call, const char *key, size_t value, bool busy, struct sample *sample)
{
    int count = sample->times.count;
    if (!count)
        return;
    char outlived[48] = "";
    if (busy)
        snprintf(outlived, sizeof outlived, ", \"kernel_outlived\": %d", sample->outlived);
    probe_say("'call': '%s', '%s': %zu, 'busy': %s, 'median_ns': %llu, 'p95_ns': %llu, 'max_ns': %llu, 'rounds': %d%s",
        call, key, value, busy ? "true" : "false", (unsigned long long)probe_at(&sample->times, 50),
        (unsigned long long)probe_at(&sample->times, 95), (unsigned long long)probe_at(&sample->times, 100), count,
        outlived);
    *sample = (struct sample){.outlived = 0};
}

#define TIMED(sample, busy, call)                                                                   \
    do {                                                                                            \
        if (busy)                                                                                   \
            NEED(probe_busy(probe.load, BUSY_US));                                                  \
        uint64_t began_ = probe_ns();                                                               \
        CUresult result_ = (call);                                                                  \
        probe_add(&(sample)->times, probe_ns() - began_);                                           \
        if (result_ != CUDA_SUCCESS)                                                                \
            return probe_refused(#call, result_);                                                   \
        if (busy) {                                                                                 \
            (sample)->outlived += probe.cu.cuStreamQuery(probe.load) == CUDA_ERROR_NOT_READY;       \
            NEED(probe.cu.cuStreamSynchronize(probe.load));                                         \
        }                                                                                           \
    } while (0)

static int costs_rounds(bool busy)
{
    return busy ? (probe.rounds + 2) / 3 : probe.rounds;
}

/* Idle, and where a kernel can be had busy. */
static bool costs_idle_and_busy(bool (*measure)(size_t value, bool busy), const size_t *values, int count)
{
    for (int busy = 0; busy < (probe.kernels.spin ? 2 : 1); busy++)
        for (int i = 0; i < count; i++)
            if (!measure(values[i], busy))
                return false;
    return true;
}

/* The life of a page of `bytes`: each call once a round. */
static bool measure_page(size_t bytes, bool busy)
{
    static struct sample reserve, create, map, access, unmap, release, give;
    const CUmemAllocationProp prop = probe_prop();
    for (int i = 0; i < costs_rounds(busy); i++) {
        CUdeviceptr address;
        CUmemGenericAllocationHandle handle;
        TIMED(&reserve, busy, probe.cu.cuMemAddressReserve(&address, bytes, 0, 0, 0));
        TIMED(&create, busy, probe.cu.cuMemCreate(&handle, bytes, &prop, 0));
        TIMED(&map, busy, probe.cu.cuMemMap(address, bytes, 0, handle, 0));
        TIMED(&access, busy, probe_access(address, bytes));
        NEED(probe.cu.cuMemsetD8_v2(address, 1, bytes));
        NEED(probe.cu.cuCtxSynchronize());
        TIMED(&unmap, busy, probe.cu.cuMemUnmap(address, bytes));
        TIMED(&release, busy, probe.cu.cuMemRelease(handle));
        TIMED(&give, busy, probe.cu.cuMemAddressFree(address, bytes));
    }
    costs_show("cuMemAddressReserve", "bytes", bytes, busy, &reserve);
    costs_show("cuMemCreate", "bytes", bytes, busy, &create);
    costs_show("cuMemMap", "bytes", bytes, busy, &map);
    costs_show("cuMemSetAccess", "bytes", bytes, busy, &access);
    costs_show("cuMemUnmap", "bytes", bytes, busy, &unmap);
    costs_show("cuMemRelease", "bytes", bytes, busy, &release);
    costs_show("cuMemAddressFree", "bytes", bytes, busy, &give);
    return true;
}

bool costs_pages(void)
{
    static const size_t sizes[] = {2 * MIB, 16 * MIB, 20 * MIB, 32 * MIB, 64 * MIB, 256 * MIB};
    HAVE(cuMemCreate);
    return costs_idle_and_busy(measure_page, sizes, sizeof sizes / sizeof *sizes);
}

static bool measure_plain(size_t bytes, bool busy)
{
    static struct sample take, give;
    for (int i = 0; i < costs_rounds(busy); i++) {
        CUdeviceptr address;
        TIMED(&take, busy, probe.cu.cuMemAlloc_v2(&address, bytes));
        TIMED(&give, busy, probe.cu.cuMemFree_v2(address));
    }
    costs_show("cuMemAlloc", "bytes", bytes, busy, &take);
    costs_show("cuMemFree", "bytes", bytes, busy, &give);
    return true;
}

bool costs_plain(void)
{
    static const size_t sizes[] = {MIB, 2 * MIB, 20 * MIB, 256 * MIB};
    return costs_idle_and_busy(measure_plain, sizes, sizeof sizes / sizeof *sizes - probe.gentle);
}

bool costs_small(void)
{
    static struct sample current, info, idle;
    for (int i = 0; i < probe.rounds; i++) {
        CUcontext now;
        size_t available, total;
        uint64_t began = probe_ns();
        for (int k = 0; k < 100; k++)
            (void)probe.cu.cuCtxGetCurrent(&now);
        probe_add(&current.times, (probe_ns() - began) / 100);
        TIMED(&info, false, probe.cu.cuMemGetInfo_v2(&available, &total));
        TIMED(&idle, false, probe.cu.cuCtxSynchronize());
    }
    costs_show("cuCtxGetCurrent", "bytes", 0, false, &current);
    costs_show("cuMemGetInfo", "bytes", 0, false, &info);
    costs_show("cuCtxSynchronize when idle", "bytes", 0, false, &idle);
    return true;
}

/* The calls of one round with `count` streams that have work. */
struct stream_samples {
    struct sample record, query, whole, asked, wait;
};

static bool stream_round(CUstream stream, CUstream next, CUevent event, CUevent over_all, struct stream_samples *s)
{
    TIMED(&s->record, false, probe.cu.cuEventRecord(event, stream));
    uint64_t began = probe_ns();
    CUresult state = probe.cu.cuEventQuery(event);
    probe_add(&s->query.times, probe_ns() - began);
    s->query.outlived += state == CUDA_ERROR_NOT_READY;
    began = probe_ns();
    if (probe.cu.cuCtxRecordEvent && probe.cu.cuCtxRecordEvent(probe.context, over_all) == CUDA_SUCCESS) {
        probe_add(&s->whole.times, probe_ns() - began);
        began = probe_ns();
        (void)probe.cu.cuEventQuery(over_all);
        probe_add(&s->asked.times, probe_ns() - began);
    }
    TIMED(&s->wait, false, probe.cu.cuStreamWaitEvent(next, event, 0));
    return true;
}

static bool measure_streams(size_t count, bool busy)
{
    static struct stream_samples s;
    CUstream streams[STREAMS_MAX];
    CUevent event, over_all;
    NEED(probe.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(probe.cu.cuEventCreate(&over_all, CU_EVENT_DISABLE_TIMING));
    for (size_t i = 0; i < count; i++)
        NEED(probe.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < costs_rounds(busy); i++) {
        for (size_t stream = 0; probe.kernels.spin && stream < count; stream++)
            NEED(probe_busy(streams[stream], busy ? 3000 : 0));
        if (!stream_round(streams[(size_t)i % count], streams[((size_t)i + 1) % count], event, over_all, &s))
            return false;
        NEED(probe.cu.cuCtxSynchronize());
    }
    costs_show("cuEventRecord", "streams", count, busy, &s.record);
    costs_show("cuEventQuery", "streams", count, busy, &s.query);
    costs_show("cuCtxRecordEvent", "streams", count, busy, &s.whole);
    costs_show("cuEventQuery of a context", "streams", count, busy, &s.asked);
    costs_show("cuStreamWaitEvent", "streams", count, busy, &s.wait);
    for (size_t i = 0; i < count; i++)
        NEED(probe.cu.cuStreamDestroy_v2(streams[i]));
    NEED(probe.cu.cuEventDestroy_v2(event));
    NEED(probe.cu.cuEventDestroy_v2(over_all));
    return true;
}

bool costs_streams(void)
{
    static const size_t counts[] = {1, 8, 64, STREAMS_MAX};
    return costs_idle_and_busy(measure_streams, counts, sizeof counts / sizeof *counts);
}

/* One call for `count` handles side by side, and one handle of as many bytes. */
struct handle_times {
    struct probe_times create, map, access, unmap, release;
};

static bool measure_handles_once(int count, size_t page, bool busy, struct handle_times *times)
{
    const CUmemAllocationProp prop = probe_prop();
    struct probe_pages pages = {.page = page, .count = count, .bytes = (size_t)count * page};
    CUmemGenericAllocationHandle handle[256];
    pages.handle = handle;
    NEED(probe.cu.cuMemAddressReserve(&pages.address, pages.bytes, 0, 0, 0));
    uint64_t began = probe_ns();
    for (int i = 0; i < count; i++)
        NEED(probe.cu.cuMemCreate(&handle[i], page, &prop, 0));
    probe_add(&times->create, probe_ns() - began);
    if (busy)
        NEED(probe_busy(probe.load, BUSY_US));
    began = probe_ns();
    NEED(probe_pages_map(&pages));
    probe_add(&times->map, probe_ns() - began);
    began = probe_ns();
    NEED(probe_access(pages.address, pages.bytes));
    probe_add(&times->access, probe_ns() - began);
    for (int i = 0; i < count; i++) /* used once; its beginning is enough, and a simulator's memory is the host's */
        NEED(probe.cu.cuMemsetD8Async(pages.address + (size_t)i * page, 1, 4096, probe.load));
    NEED(probe.cu.cuStreamSynchronize(probe.load));
    if (busy)
        NEED(probe_busy(probe.load, BUSY_US));
    began = probe_ns();
    NEED(probe.cu.cuMemUnmap(pages.address, pages.bytes));
    probe_add(&times->unmap, probe_ns() - began);
    NEED(probe.cu.cuStreamSynchronize(probe.load));
    began = probe_ns();
    for (int i = 0; i < count; i++)
        NEED(probe.cu.cuMemRelease(handle[i]));
    probe_add(&times->release, probe_ns() - began);
    NEED(probe.cu.cuMemAddressFree(pages.address, pages.bytes));
    return true;
}

static bool measure_handles(int count, size_t page, bool busy)
{
    struct handle_times t = {.create = {.count = 0}};
    int rounds = probe.quick ? 1 : count > 16 ? 5 : 10;
    for (int i = 0; i < rounds; i++)
        if (!measure_handles_once(count, page, busy, &t))
            return false;
    probe_say("'handles': %d, 'handle_bytes': %zu, 'busy': %s, 'rounds': %d, 'create_ns': %llu, 'map_ns': %llu, "
              "'access_ns': %llu, 'unmap_ns': %llu, 'release_ns': %llu",
        count, page, busy ? "true" : "false", rounds, (unsigned long long)probe_at(&t.create, 50),
        (unsigned long long)probe_at(&t.map, 50), (unsigned long long)probe_at(&t.access, 50),
        (unsigned long long)probe_at(&t.unmap, 50), (unsigned long long)probe_at(&t.release, 50));
    return true;
}

bool probe_cost_handles(void)
{
    static const int counts[] = {1, 4, 16, 64, 256};
    HAVE(cuMemCreate);
    size_t most = probe.gentle ? 64 : 256;
    if (most > probe_free_bytes() / 4 / probe.granule)
        most = probe_free_bytes() / 4 / probe.granule;
    for (int busy = 0; busy < (probe.kernels.spin ? 2 : 1); busy++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts && (size_t)counts[i] <= most; i++) {
            if (!measure_handles(counts[i], probe.granule, busy) ||
                (counts[i] > 1 && !measure_handles(1, (size_t)counts[i] * probe.granule, busy)))
                return false;
        }
    }
    return true;
}

/* Costs of maps, access and unmaps where the handle has `mapped` addresses already. */
static bool time_at(CUmemGenericAllocationHandle handle, CUdeviceptr spare, int mapped)
{
    struct probe_times map = {.count = 0}, access = {.count = 0}, unmap = {.count = 0};
    for (int i = 0; i < (probe.quick ? 3 : 50); i++) {
        uint64_t began = probe_ns();
        NEED(probe.cu.cuMemMap(spare, probe.granule, 0, handle, 0));
        uint64_t mapped_ns = probe_ns();
        NEED(probe_access(spare, probe.granule));
        uint64_t given_ns = probe_ns();
        NEED(probe.cu.cuMemUnmap(spare, probe.granule));
        probe_add(&unmap, probe_ns() - given_ns);
        probe_add(&access, given_ns - mapped_ns);
        probe_add(&map, mapped_ns - began);
    }
    probe_say("'addresses': %d, 'map_ns': %llu, 'access_ns': %llu, 'unmap_ns': %llu, 'access_p95_ns': %llu", mapped,
        (unsigned long long)probe_at(&map, 50), (unsigned long long)probe_at(&access, 50),
        (unsigned long long)probe_at(&unmap, 50), (unsigned long long)probe_at(&access, 95));
    return true;
}

/* One handle at more and more addresses: bounded, for the mappings of a machine are few and everybody's. */
bool probe_addresses(void)
{
    static const int stages[] = {1, 1024, 16384, 65536};
    int most = probe.simulated || probe.gentle
                   ? 16384
                   : 65536; /* the simulator's are mappings of this process, of which Linux gives 65,530 */
    CUmemAllocationProp prop = probe_prop();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    int mapped = 0;
    HAVE(cuMemCreate);
    size_t bytes = ((size_t)most + 1) * probe.granule;
    NEED(probe.cu.cuMemCreate(&handle, probe.granule, &prop, 0));
    NEED(probe.cu.cuMemAddressReserve(&range, bytes, 0, 0, 0));
    uint64_t began = probe_real_ns();
    for (size_t stage = 0; stage < sizeof stages / sizeof *stages && stages[stage] <= most; stage++) {
        for (; mapped < stages[stage]; mapped++) {
            CUdeviceptr at = range + (size_t)mapped * probe.granule;
            CUresult result = probe.cu.cuMemMap(at, probe.granule, 0, handle, 0);
            if (result == CUDA_SUCCESS && (result = probe_access(at, probe.granule)) != CUDA_SUCCESS)
                NEED(probe.cu.cuMemUnmap(at, probe.granule));
            if (result != CUDA_SUCCESS || probe_real_ns() - began > 12000000000u) {
                probe_say("'stopped_at': %d, 'code': %d", mapped, (int)result);
                goto end;
            }
        }
        if (!time_at(handle, range + bytes - probe.granule, mapped))
            return false;
    }
end:
    began = probe_ns();
    if (mapped)
        NEED(probe.cu.cuMemUnmap(range, (size_t)mapped * probe.granule));
    probe_say("'unmapped_at_once': %d, 'ns': %llu", mapped, (unsigned long long)(probe_ns() - began));
    NEED(probe.cu.cuMemAddressFree(range, bytes));
    NEED(probe.cu.cuMemRelease(handle));
    return true;
}
