/* Two things at once: pages move beside kernels, processes grow at once, one ends with much mapped,
   marks are set between two streams. */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "probe.h"

enum { MOVED = 16 };

/* A thread that maps and unmaps pages until it is told to stop. */
struct mover {
    pthread_t thread;
    atomic_bool stop, failed;
    long moves; /* of MOVED pages */
};

static void *mover_run(void *data)
{
    struct mover *mover = data;
    struct probe_pages pages;
    if (probe.cu.cuCtxSetCurrent(probe.context) != CUDA_SUCCESS ||
        probe_pages_make(MOVED, probe.granule, &pages) != CUDA_SUCCESS) {
        mover->failed = true;
        return NULL;
    }
    while (!mover->stop) {
        if (probe.cu.cuMemUnmap(pages.address, pages.bytes) != CUDA_SUCCESS ||
            probe_pages_map(&pages) != CUDA_SUCCESS || probe_access(pages.address, pages.bytes) != CUDA_SUCCESS) {
            mover->failed = true;
            return NULL;
        }
        mover->moves++;
    }
    probe_pages_end(&pages);
    return NULL;
}

/* Kernels that read `bytes`, and launches of an empty one beside them. Bytes a second, and ns a launch. */
struct loaded {
    struct probe_times kernels, launches;
};

static bool run_load(CUdeviceptr address, size_t bytes, CUdeviceptr sum, struct loaded *ret)
{
    CUstream beside;
    CUevent from, to;
    uint64_t words = bytes / 4;
    void *parameters[] = {&address, &words, &sum};
    NEED(probe.cu.cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    NEED(probe.cu.cuEventCreate(&from, CU_EVENT_DEFAULT));
    NEED(probe.cu.cuEventCreate(&to, CU_EVENT_DEFAULT));
    ret->kernels.count = ret->launches.count = 0;
    for (int i = 0; i < (probe.quick ? 5 : 300); i++) {
        float ms = 0;
        NEED(probe.cu.cuEventRecord(from, probe.load));
        NEED(probe_launch(probe.kernels.sweep, 1056, probe.load, parameters));
        NEED(probe.cu.cuEventRecord(to, probe.load));
        for (int k = 0; k < 10; k++) {
            uint64_t began = probe_real_ns();
            NEED(probe_launch(probe.kernels.nothing, 1, beside, NULL));
            probe_add(&ret->launches, probe_real_ns() - began);
        }
        NEED(probe.cu.cuEventSynchronize(to));
        NEED(probe.cu.cuStreamSynchronize(beside));
        NEED(probe.cu.cuEventElapsedTime(&ms, from, to));
        probe_add(&ret->kernels, (uint64_t)(ms * 1e6f));
    }
    NEED(probe.cu.cuStreamDestroy_v2(beside));
    NEED(probe.cu.cuEventDestroy_v2(from));
    NEED(probe.cu.cuEventDestroy_v2(to));
    return true;
}

static void show_load(bool moving, size_t mapped, size_t bytes, struct loaded *found, long moves)
{
    probe_say("'moving': %s, 'mapped_bytes': %zu, 'read_bytes': %zu, 'kernel_ns': %llu, 'kernel_p99_ns': %llu, "
              "'launch_ns': %llu, 'launch_p99_ns': %llu, 'launch_max_ns': %llu, 'pages_moved': %ld",
        moving ? "true" : "false", mapped, bytes, (unsigned long long)probe_at(&found->kernels, 50),
        (unsigned long long)probe_at(&found->kernels, 99), (unsigned long long)probe_at(&found->launches, 50),
        (unsigned long long)probe_at(&found->launches, 99), (unsigned long long)probe_at(&found->launches, 100),
        moves * MOVED);
}

static bool with_and_without(CUdeviceptr address, size_t bytes, size_t mapped, CUdeviceptr sum)
{
    static struct loaded found;
    static struct mover mover;
    if (!run_load(address, bytes, sum, &found)) /* the first use of each kernel loads it */
        return false;
    if (!run_load(address, bytes, sum, &found))
        return false;
    show_load(false, mapped, bytes, &found, 0);
    mover.stop = mover.failed = false;
    mover.moves = 0;
    if (pthread_create(&mover.thread, NULL, mover_run, &mover) != 0)
        return probe_refused("pthread_create", CUDA_ERROR_UNKNOWN);
    bool well = run_load(address, bytes, sum, &found);
    mover.stop = true;
    pthread_join(mover.thread, NULL);
    if (well)
        show_load(true, mapped, bytes, &found, mover.moves);
    return well && (!mover.failed || probe_refused("a move beside kernels", CUDA_ERROR_UNKNOWN));
}

bool probe_moving(void)
{
    struct probe_pages more;
    CUdeviceptr buffer, sum;
    size_t available = probe_free_bytes(), bytes = probe.quick ? 16 * MIB : GIB;
    HAVE(cuMemCreate);
    if (!probe.kernels.sweep || !probe.kernels.nothing)
        return probe_skip("no kernels: neither nvcc nor a driver that compiles");
    if (available < 4 * bytes)
        return probe_skip("%zu MiB free, %zu wanted", available / MIB, 4 * bytes / MIB);
    NEED(probe.cu.cuMemAlloc_v2(&buffer, bytes));
    NEED(probe.cu.cuMemAlloc_v2(&sum, 4));
    if (!with_and_without(buffer, bytes, 0, sum))
        return false;
    size_t mapped = available / 2 > 32 * GIB ? 32 * GIB : available / 2; /* well below what is free */
    if (probe.quick)
        mapped = 64 * MIB;
    NEED(probe_pages_make((int)(mapped / probe.granule), probe.granule, &more));
    if (!with_and_without(buffer, bytes, more.bytes, sum))
        return false;
    probe_pages_end(&more);
    NEED(probe.cu.cuMemFree_v2(buffer));
    NEED(probe.cu.cuMemFree_v2(sum));
    return true;
}

bool probe_bandwidth(void)
{
    static struct loaded found;
    struct probe_pages pages;
    CUdeviceptr buffer, sum;
    size_t bytes = probe_free_bytes() / 4;
    HAVE(cuMemCreate);
    if (!probe.kernels.sweep)
        return probe_skip("no kernels: neither nvcc nor a driver that compiles");
    bytes = probe.quick ? 64 * MIB : bytes > 8 * GIB ? 8 * GIB : bytes;
    bytes = bytes / probe.granule * probe.granule;
    NEED(probe.cu.cuMemAlloc_v2(&sum, 4));
    NEED(probe.cu.cuMemAlloc_v2(&buffer, bytes));
    if (!run_load(buffer, bytes, sum, &found))
        return false;
    probe_say("'memory': 'plain', 'bytes': %zu, 'kernel_ns': %llu", bytes,
        (unsigned long long)probe_at(&found.kernels, 50));
    NEED(probe.cu.cuMemFree_v2(buffer));
    NEED(probe_pages_make((int)(bytes / probe.granule), probe.granule, &pages));
    if (!run_load(pages.address, bytes, sum, &found))
        return false;
    probe_say("'memory': 'pages of %zu MiB', 'bytes': %zu, 'kernel_ns': %llu", probe.granule / MIB, bytes,
        (unsigned long long)probe_at(&found.kernels, 50));
    probe_pages_end(&pages);
    NEED(probe.cu.cuMemFree_v2(sum));
    return true;
}

/* Grows by as many bytes, 16 pages an access, and tells how many ns that took by the page. */
int probe_role_grow(const char *bytes)
{
    const CUmemAllocationProp prop = probe_prop();
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    size_t wanted = strtoull(bytes, NULL, 10) / probe.granule / MOVED * MOVED * probe.granule,
           step = MOVED * probe.granule;
    if (!probe.cu.cuMemCreate || probe.cu.cuMemAddressReserve(&address, wanted, 0, 0, 0) != CUDA_SUCCESS)
        return 1;
    probe_ready();
    uint64_t began = probe_ns();
    for (size_t at = 0; at < wanted; at += step) {
        for (size_t page = at; page < at + step; page += probe.granule)
            if (probe.cu.cuMemCreate(&handle, probe.granule, &prop, 0) != CUDA_SUCCESS ||
                probe.cu.cuMemMap(address + page, probe.granule, 0, handle, 0) != CUDA_SUCCESS)
                return 1;
        if (probe_access(address + at, step) != CUDA_SUCCESS)
            return 1;
    }
    probe_tell((probe_ns() - began) / (wanted / probe.granule));
    return 0;
}

bool probe_growth(void)
{
    enum { MOST = 4 };
    char bytes[32];
    HAVE(cuMemCreate);
    size_t each = probe_free_bytes() / 2 / MOST;
    each = probe.quick ? 64 * MIB : each > 8 * GIB ? 8 * GIB : each;
    snprintf(bytes, sizeof bytes, "%zu", each);
    for (int count = 1; count <= MOST; count *= 2) {
        struct probe_child child[MOST];
        struct probe_times times = {.count = 0};
        int failed = 0;
        for (int i = 0; i < count; i++)
            if (!probe_child_start("--grow", bytes, NULL, &child[i]))
                return probe_refused("a process that grows", CUDA_ERROR_UNKNOWN);
        for (int i = 0; i < count; i++)
            probe_child_go(&child[i]);
        for (int i = 0; i < count; i++) {
            uint64_t ns;
            if (probe_child_end(&child[i], &ns))
                probe_add(&times, ns);
            else
                failed++;
        }
        if (failed) {
            probe_say("'error': '%d of %d processes that grow failed', 'processes': %d, 'bytes_each': %zu", failed, count,
                count, each);
            return false;
        }
        probe_say("'processes': %d, 'bytes_each': %zu, 'ns_a_page': %llu, 'slowest_ns_a_page': %llu", count, each,
            (unsigned long long)probe_at(&times, 50), (unsigned long long)probe_at(&times, 100));
    }
    return true;
}

/* Ends with so many mappings of one handle, or, for a number below 0, of as many handles. */
int probe_role_leave(const char *text)
{
    CUmemAllocationProp prop = probe_prop();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr range;
    long number = strtol(text, NULL, 10), count = number < 0 ? -number : number;
    if (!probe.cu.cuMemCreate || (count && probe.cu.cuMemAddressReserve(&range, (size_t)count * probe.granule, 0, 0, 0)))
        return 1;
    for (long i = 0; i < count; i++) {
        CUdeviceptr at = range + (size_t)i * probe.granule;
        if ((number < 0 || i == 0) && probe.cu.cuMemCreate(&handle, probe.granule, &prop, 0) != CUDA_SUCCESS)
            return 1;
        if (probe.cu.cuMemMap(at, probe.granule, 0, handle, 0) != CUDA_SUCCESS ||
            probe_access(at, probe.granule) != CUDA_SUCCESS)
            return 1;
    }
    probe_ready();
    _exit(0);
}

bool probe_exit(void)
{
    HAVE(cuMemCreate);
    long handles = (long)(probe_free_bytes() / 4 / probe.granule);
    long most = probe.gentle ? 512 : 8192;
    const long counts[] = {0, 16384, probe.gentle ? 0 : 40960, handles > most ? -most : -handles};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char text[32];
        struct probe_child child;
        snprintf(text, sizeof text, "%ld", counts[i]);
        if (!probe_child_start("--leave", text, NULL, &child)) {
            probe_say("'mappings': %ld, 'error': 'could not be made'", labs(counts[i]));
            continue;
        }
        uint64_t began = probe_real_ns();
        probe_child_go(&child);
        bool well = probe_child_end(&child, NULL);
        probe_say("'mappings': %ld, 'handles': %ld, 'exit_ns': %llu, 'ended': %s", labs(counts[i]),
            counts[i] < 0 ? -counts[i] : counts[i] > 0 ? 1 : 0, (unsigned long long)(probe_real_ns() - began),
            well ? "true" : "false");
    }
    return true;
}

/* Makes work that takes at least `ms` milliseconds, and says how long it takes at least: the shortest of some rounds. A time that was measured
   once may be far too long, on a machine that others use. */
static CUresult beside_work_make(unsigned ms, struct probe_work *ret, uint64_t *ret_ns)
{
    enum { ROUNDS = 5, COPIES_MOST = 4000 };
    CUresult result = probe_work_make(ms, ret);
    for (;; ret->copies *= 2) {
        uint64_t shortest = UINT64_MAX;
        for (int i = 0; i < ROUNDS && result == CUDA_SUCCESS; i++) {
            uint64_t began = probe_real_ns();
            result = probe_work_queue(ret, probe.load);
            if (result == CUDA_SUCCESS)
                result = ASK(cuStreamSynchronize, probe.load);
            uint64_t ns = probe_real_ns() - began;
            shortest = ns < shortest ? ns : shortest;
        }
        *ret_ns = shortest;
        if (result != CUDA_SUCCESS || shortest >= ms * 1000000ull || ret->copies > COPIES_MOST)
            return result;
    }
}

/* The answer of one call of a page's life beside work. A call that found the copies under way and came back while they still were did not wait.
   One that came back late, to copies that are over, did. One that came back soon, to copies that are over, says nothing: on a busy machine
   this thread may have lost its processor before the call or after it. */
enum beside_told { BESIDE_NOTHING, BESIDE_OUTLIVED, BESIDE_WAITED };

static enum beside_told beside_judge(bool early, uint64_t ns, uint64_t length)
{
    if (!early)
        return BESIDE_NOTHING;
    if (probe.cu.cuStreamQuery(probe.load) == CUDA_ERROR_NOT_READY)
        return BESIDE_OUTLIVED;
    return ns < length / 4 ? BESIDE_NOTHING : BESIDE_WAITED;
}

/* The calls of a page's life while copies are queued: how many of each did not wait for them. Rounds that tell nothing are made up for, up to
   three more for each. */
bool selftest_beside(void)
{
    enum { CALLS = 4, BUSY_MS = 20 };
    static const char *const names[CALLS] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"};
    const CUmemAllocationProp prop = probe_prop();
    struct probe_times times[CALLS] = {{.count = 0}};
    int outlived[CALLS] = {0}, seen[CALLS] = {0}, rounds = probe.quick ? 4 : 8, fewest = 0;
    struct probe_work work;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle = 0;
    HAVE(cuMemCreate);
    uint64_t length;
    NEED(beside_work_make(BUSY_MS, &work, &length));
    NEED(probe.cu.cuMemAddressReserve(&address, probe.granule, 0, 0, 0));
    for (int i = 0; i < 4 * rounds && fewest < rounds; i++) {
        fewest = INT_MAX;
        for (int call = 0; call < CALLS; call++) {
            uint64_t queued = probe_real_ns();
            NEED(probe_work_queue(&work, probe.load));
            uint64_t began = probe_real_ns();
            /* On a busy machine this thread may come late. The rest of the copies is then too short to tell a wait by. */
            bool early = began - queued < length / 2 && probe.cu.cuStreamQuery(probe.load) == CUDA_ERROR_NOT_READY;
            CUresult result = call == 0   ? probe.cu.cuMemCreate(&handle, probe.granule, &prop, 0)
                              : call == 1 ? probe.cu.cuMemMap(address, probe.granule, 0, handle, 0)
                              : call == 2 ? probe_access(address, probe.granule)
                                          : probe.cu.cuMemUnmap(address, probe.granule);
            if (result != CUDA_SUCCESS)
                return probe_refused(names[call], result);
            uint64_t ns = probe_real_ns() - began;
            enum beside_told told = beside_judge(early, ns, length);
            probe_add(&times[call], ns);
            seen[call] += told != BESIDE_NOTHING;
            outlived[call] += told == BESIDE_OUTLIVED;
            fewest = seen[call] < fewest ? seen[call] : fewest;
            NEED(probe.cu.cuStreamSynchronize(probe.load));
        }
        NEED(probe.cu.cuMemRelease(handle));
    }
    for (int call = 0; call < CALLS; call++)
        probe_say("'call': '%s', 'busy': true, 'rounds': %d, 'outlived': %d, 'median_ns': %llu", names[call],
            seen[call], outlived[call], (unsigned long long)probe_at(&times[call], 50));
    NEED(probe.cu.cuMemAddressFree(address, probe.granule));
    probe_work_end(&work);
    return true;
}

/* Two blocking streams with 100 kernels of 100 us each; a mark on the legacy stream every millisecond, or none. */
static bool run_marked(bool marked, uint64_t *ret_ns)
{
    enum { KERNELS = 100, LENGTH_US = 100, MARK_EVERY = 10 };
    CUstream stream[2];
    CUevent mark;
    NEED(probe.cu.cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++)
        NEED(probe.cu.cuStreamCreate(&stream[i], CU_STREAM_DEFAULT));
    uint64_t began = probe_real_ns();
    for (int i = 0; i < (probe.quick ? 2 * MARK_EVERY : KERNELS); i++) {
        NEED(probe_busy(stream[0], LENGTH_US));
        /* now ahead, now behind, as long in all: a joint of the two costs a quarter */
        NEED(probe_busy(stream[1], i / MARK_EVERY % 2 ? LENGTH_US / 2 : LENGTH_US * 3 / 2));
        if (marked && i % MARK_EVERY == MARK_EVERY - 1)
            NEED(probe.cu.cuEventRecord(mark, CU_STREAM_LEGACY));
    }
    NEED(probe.cu.cuCtxSynchronize());
    *ret_ns = probe_real_ns() - began;
    for (int i = 0; i < 2; i++)
        NEED(probe.cu.cuStreamDestroy_v2(stream[i]));
    NEED(probe.cu.cuEventDestroy_v2(mark));
    return true;
}

bool probe_marks(void)
{
    uint64_t without, with;
    if (!probe.kernels.spin)
        return probe_skip("no kernels: neither nvcc nor a driver that compiles");
    if (!run_marked(false, &without) || !run_marked(false, &without) || !run_marked(true, &with))
        return false;
    probe_say("'without_ns': %llu, 'with_ns': %llu", (unsigned long long)without, (unsigned long long)with);
    return true;
}
