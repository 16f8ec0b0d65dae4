/* What the driver's calls cost: each by size, with the device idle and with a kernel running; events by the number of
   streams. Prints one JSON object. Natively, on a real GPU, these are the figures that the allocator's table of costs
   (src/core/cost.def) is to be made from; on the simulator it shows only that this program works.

   usage: costs [ROUNDS]   (of each measurement, 30) */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_proto.h"

enum { ROUNDS_MAX = 1000, STREAMS_MAX = 64, BUSY_MS = 30 };
#define MIB ((size_t)1 << 20)

/* Keeps one thread busy for as many nanoseconds by the device's own clock. */
static const char spin_source[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u64 length)\n{\n"
    "  .reg .u64 %begin, %now, %length;\n  .reg .pred %more;\n"
    "  ld.param.u64 %length, [length];\n  mov.u64 %begin, %globaltimer;\n"
    "again:\n  mov.u64 %now, %globaltimer;\n  sub.u64 %now, %now, %begin;\n"
    "  setp.lt.u64 %more, %now, %length;\n  @%more bra again;\n  ret;\n}\n";

static CUcontext context;
static CUfunction spin;
static CUstream load_stream;
static int rounds = 30;
static bool first_row = true;

#define CHECK(call) check(call, #call)

static void check(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "costs: %s: error %d\n", call, (int)result);
        exit(1);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Times of one call. `outlived`: after how many of them the kernel that was running still ran. */
struct sample {
    uint64_t ns[ROUNDS_MAX];
    int count, outlived;
};

static void print_row(const char *call, const char *key, size_t value, bool busy, struct sample *sample)
{
    if (!sample->count)
        return;
    qsort(sample->ns, (size_t)sample->count, sizeof *sample->ns, by_value);
    printf(
        "%s\n  {\"call\": \"%s\", \"%s\": %zu, \"busy\": %s, \"median_ns\": %llu, \"p95_ns\": %llu, \"max_ns\": %llu, "
        "\"rounds\": %d",
        first_row ? "" : ",", call, key, value, busy ? "true" : "false",
        (unsigned long long)sample->ns[sample->count / 2], (unsigned long long)sample->ns[sample->count * 95 / 100],
        (unsigned long long)sample->ns[sample->count - 1], sample->count);
    if (busy)
        printf(", \"kernel_outlived\": %d", sample->outlived);
    printf("}");
    first_row = false;
    sample->count = sample->outlived = 0;
}

static void start_load(CUstream stream, unsigned ms)
{
    uint64_t length = (uint64_t)ms * 1000000u;
    void *parameters[] = {&length};
    CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

#define TIMED(sample, busy, call)                                                                  \
    do {                                                                                           \
        if (busy)                                                                                  \
            start_load(load_stream, BUSY_MS);                                                      \
        uint64_t began_ = now_ns();                                                                \
        CUresult result_ = (call);                                                                 \
        (sample)->ns[(sample)->count++] = now_ns() - began_;                                       \
        if (busy) {                                                                                \
            (sample)->outlived += cuStreamQuery(load_stream) == CUDA_ERROR_NOT_READY;              \
            CHECK(cuStreamSynchronize(load_stream));                                               \
        }                                                                                          \
        check(result_, #call);                                                                     \
    } while (0)

/* The life of a page of `bytes`: each call once a round. */
static void measure_page(size_t bytes, bool busy)
{
    static struct sample reserve, create, map, access, unmap, release, give;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc everything = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    int count = busy ? (rounds + 2) / 3 : rounds;
    for (int i = 0; i < count; i++) {
        CUdeviceptr address;
        CUmemGenericAllocationHandle handle;
        TIMED(&reserve, busy, cuMemAddressReserve(&address, bytes, 0, 0, 0));
        TIMED(&create, busy, cuMemCreate(&handle, bytes, &prop, 0));
        TIMED(&map, busy, cuMemMap(address, bytes, 0, handle, 0));
        TIMED(&access, busy, cuMemSetAccess(address, bytes, &everything, 1));
        CHECK(cuMemsetD8_v2(address, 1, bytes));
        CHECK(cuStreamSynchronize(NULL));
        TIMED(&unmap, busy, cuMemUnmap(address, bytes));
        TIMED(&release, busy, cuMemRelease(handle));
        TIMED(&give, busy, cuMemAddressFree(address, bytes));
    }
    print_row("cuMemAddressReserve", "bytes", bytes, busy, &reserve);
    print_row("cuMemCreate", "bytes", bytes, busy, &create);
    print_row("cuMemMap", "bytes", bytes, busy, &map);
    print_row("cuMemSetAccess", "bytes", bytes, busy, &access);
    print_row("cuMemUnmap", "bytes", bytes, busy, &unmap);
    print_row("cuMemRelease", "bytes", bytes, busy, &release);
    print_row("cuMemAddressFree", "bytes", bytes, busy, &give);
}

/* Sixteen pages that lie side by side: access for all in one call, and one call that unmaps all. */
static void measure_run(size_t page, bool busy)
{
    enum { PAGES = 16 };
    static struct sample access, unmap;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc everything = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    CUmemGenericAllocationHandle handles[PAGES];
    CHECK(cuMemAddressReserve(&address, PAGES * page, 0, 0, 0));
    for (int i = 0; i < (rounds + 2) / 3; i++) {
        for (int p = 0; p < PAGES; p++) {
            CHECK(cuMemCreate(&handles[p], page, &prop, 0));
            CHECK(cuMemMap(address + (size_t)p * page, page, 0, handles[p], 0));
        }
        TIMED(&access, busy, cuMemSetAccess(address, PAGES * page, &everything, 1));
        TIMED(&unmap, busy, cuMemUnmap(address, PAGES * page));
        for (int p = 0; p < PAGES; p++)
            CHECK(cuMemRelease(handles[p]));
    }
    CHECK(cuMemAddressFree(address, PAGES * page));
    print_row("cuMemSetAccess of 16 pages", "bytes", page, busy, &access);
    print_row("cuMemUnmap of 16 pages", "bytes", page, busy, &unmap);
}

static void measure_plain(size_t bytes, bool busy)
{
    static struct sample take, give;
    int count = busy ? (rounds + 2) / 3 : rounds;
    for (int i = 0; i < count; i++) {
        CUdeviceptr address;
        TIMED(&take, busy, cuMemAlloc_v2(&address, bytes));
        TIMED(&give, busy, cuMemFree_v2(address));
    }
    print_row("cuMemAlloc", "bytes", bytes, busy, &take);
    print_row("cuMemFree", "bytes", bytes, busy, &give);
}

/* With `count` streams that have each been given work. */
static void measure_streams(int count, bool busy)
{
    static struct sample record, query, whole, asked, wait;
    CUstream streams[STREAMS_MAX];
    CUevent event, over_all;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&over_all, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < count; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < rounds; i++) {
        for (int s = 0; s < count; s++)
            start_load(streams[s], busy ? 3 : 0);
        CUstream stream = streams[i % count];
        uint64_t began = now_ns();
        CHECK(cuEventRecord(event, stream));
        record.ns[record.count++] = now_ns() - began;
        began = now_ns();
        CUresult state = cuEventQuery(event);
        query.ns[query.count++] = now_ns() - began;
        query.outlived += state == CUDA_ERROR_NOT_READY;
        began = now_ns();
        CUresult result = cuCtxRecordEvent(context, over_all);
        if (result == CUDA_SUCCESS) {
            whole.ns[whole.count++] = now_ns() - began;
            began = now_ns();
            (void)cuEventQuery(over_all);
            asked.ns[asked.count++] = now_ns() - began;
        }
        began = now_ns();
        CHECK(cuStreamWaitEvent(streams[(i + 1) % count], event, 0));
        wait.ns[wait.count++] = now_ns() - began;
        CHECK(cuCtxSynchronize());
    }
    print_row("cuEventRecord", "streams", (size_t)count, busy, &record);
    print_row("cuEventQuery", "streams", (size_t)count, busy, &query);
    print_row("cuCtxRecordEvent", "streams", (size_t)count, busy, &whole);
    print_row("cuEventQuery of a context", "streams", (size_t)count, busy, &asked);
    print_row("cuStreamWaitEvent", "streams", (size_t)count, busy, &wait);
    for (int i = 0; i < count; i++)
        CHECK(cuStreamDestroy_v2(streams[i]));
    CHECK(cuEventDestroy_v2(event));
    CHECK(cuEventDestroy_v2(over_all));
}

static void measure_small(void)
{
    static struct sample current, info, idle;
    for (int i = 0; i < rounds; i++) {
        CUcontext now;
        size_t available, total;
        uint64_t began = now_ns();
        for (int k = 0; k < 100; k++)
            (void)cuCtxGetCurrent(&now);
        current.ns[current.count++] = (now_ns() - began) / 100;
        TIMED(&info, false, cuMemGetInfo_v2(&available, &total));
        TIMED(&idle, false, cuCtxSynchronize());
    }
    print_row("cuCtxGetCurrent", "bytes", 0, false, &current);
    print_row("cuMemGetInfo", "bytes", 0, false, &info);
    print_row("cuCtxSynchronize when idle", "bytes", 0, false, &idle);
}

int main(int argc, char **argv)
{
    static const size_t pages[] = {2, 16, 20, 32, 64, 256}, plain[] = {1, 2, 20, 256}, runs[] = {2, 20};
    static const int streams[] = {1, 8, 64};
    CUdevice device;
    CUmodule module;
    char name[96];
    int version;
    if (argc > 1)
        rounds = atoi(argv[1]);
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, spin_source));
    CHECK(cuModuleGetFunction(&spin, module, "spin"));
    CHECK(cuStreamCreate(&load_stream, CU_STREAM_NON_BLOCKING));
    start_load(load_stream, 1);
    CHECK(cuCtxSynchronize());
    CHECK(cuDeviceGetName(name, sizeof name, device));
    CHECK(cuDriverGetVersion(&version));
    printf("{\"schema\": \"segalloc.costs/1\", \"device\": \"%s\", \"driver\": %d, \"rows\": [", name, version);
    measure_small();
    for (int busy = 0; busy < 2; busy++) {
        for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
            measure_page(pages[i] * MIB, busy);
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
            measure_run(runs[i] * MIB, busy);
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
            measure_plain(plain[i] * MIB, busy);
        for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
            measure_streams(streams[i], busy);
    }
    puts("\n]}");
    return 0;
}
