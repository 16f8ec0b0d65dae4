/* The structure in two parts with a map between them, and the additions. Subtractions stop at 0, because the counts of
   the two allocators are read one after the other. */
#include "inspect/core_state.h"
#include "torch/torch_counts.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "process/process.h"
#include "segalloc/segalloc.h"
#include "torch/torch_peaks.h"
#include "torch/torch_segments.h"
#include "track/torch_mode.h"

/* How DeviceStats begins (c10/core/CachingDeviceAllocator.h) in the releases for which torch_allocator.c has this called.
   Each family has three counts: of all, of the small pool, of the large one. */
struct count {
    int64_t current, peak, allocated, freed;
};
enum { ALL, SMALL, LARGE, POOLS };
struct counts {
    struct count allocation[POOLS], segment[POOLS], active[POOLS], inactive_split[POOLS], allocated_bytes[POOLS],
        reserved_bytes[POOLS];
};

/* Behind those, and behind a map where a release has one. */
struct more_counts {
    struct count active_bytes[POOLS], inactive_split_bytes[POOLS], requested_bytes[POOLS];
    int64_t retries, ooms;
    struct count oversize_allocations, oversize_segments;
    int64_t syncs, device_allocs, device_frees;
};

/* Totals of a device since it was first used: of tensors, of pages, and of calls of the driver for memory. */
struct totals {
    uint64_t allocs, frees, bytes, freed_bytes, pages, released, retries, ooms, syncs, device_allocs, device_frees;
};

static struct {
    struct totals before[SG_DEVICES_MAX]; /* when totals were last reset. Guarded by SG_LOCK_TORCH */
    _Atomic uint64_t retries[SG_DEVICES_MAX], ooms[SG_DEVICES_MAX];
} ever;

static int64_t signed_of(uint64_t value)
{
    return value < INT64_MAX ? (int64_t)value : INT64_MAX;
}

static int64_t count_over(int64_t value, int64_t base)
{
    return value > base ? value - base : 0;
}

/* An addition to a level: the core's figures. PyTorch's own segments, which are blocks of ours, are taken off. */
struct addition {
    const struct sg_stats *stats;
    const uint64_t *peaks; /* of levels, without segments */
    const struct sg_torch_peaks *own; /* those, by interval */
    int64_t segments;      /* how many there are, or their bytes */
    int64_t beyond;        /* bytes that PyTorch's cache held, and the core did not serve */
};

static void add_level(struct count *count, const struct addition *more, enum sg_stat level)
{
    int64_t now = count_over(signed_of(more->stats->value[level]), more->segments);
    int64_t peak = signed_of(more->peaks[level]);
    count[ALL].current += now;
    count[ALL].peak += peak;
    count[LARGE].current += now;
    count[LARGE].peak += peak;
}

/* A level in bytes. The peaks of the two are of different times, so their sum may be more than there ever was. For example, a pool
   of 600 MiB, gone before a tensor of 900 MiB: the peak is 900 MiB, and not 1500. */
static void add_bytes(struct count *count, const struct addition *more, enum sg_stat level)
{
    const int families[] = {ALL, LARGE};
    int64_t before[POOLS] = {count[ALL].peak, 0, count[LARGE].peak};
    add_level(count, more, level);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct count *of = &count[families[i]];
        uint64_t cache = before[families[i]] > 0 ? (uint64_t)before[families[i]] : 0;
        of->peak = signed_of(sg_torch_peaks_sum(more->own, level, cache, (uint64_t)more->beyond));
        of->peak = of->peak > of->current ? of->peak : of->current;
    }
}

/* Memory that PyTorch's cache holds by other calls than cudaMalloc: expandable segments, an allocator of a pool's own. Now,
   or when each had the most. */
static int64_t bytes_beyond(const struct count *reserved, const struct sg_torch_segments *segments,
    const struct sg_torch_peaks *own)
{
    int64_t now = count_over(reserved->current, signed_of(segments->bytes));
    int64_t then = count_over(reserved->peak, signed_of(own->segment_bytes));
    return now > then ? now : then;
}

static void add_totals(struct count *count, uint64_t in, uint64_t out)
{
    count[ALL].allocated += signed_of(in);
    count[ALL].freed += signed_of(out);
    count[LARGE].allocated += signed_of(in);
    count[LARGE].freed += signed_of(out);
}

static uint64_t count_less(uint64_t value, uint64_t base)
{
    return value > base ? value - base : 0;
}

/* PyTorch's segments are blocks of ours, and no tensors. A retry is an allocation that the driver refused at first. The core
   has served some of them after all, and has refused the others. */
static struct totals totals_of(const struct sg_stats *stats, const struct sg_torch_segments *segments, int device)
{
    return (struct totals){
        .allocs = count_less(stats->value[SG_STAT_allocs], segments->made),
        .frees = count_less(stats->value[SG_STAT_frees], segments->gone),
        .bytes = count_less(stats->value[SG_STAT_allocated_total_bytes], segments->made_bytes),
        .freed_bytes = count_less(stats->value[SG_STAT_freed_total_bytes], segments->gone_bytes),
        .pages = stats->value[SG_STAT_pages_created],
        .released = count_less(stats->value[SG_STAT_pages_created], stats->value[SG_STAT_pages]),
        .retries = stats->value[SG_STAT_retries] + atomic_load_explicit(&ever.retries[device], memory_order_relaxed),
        .ooms = atomic_load_explicit(&ever.ooms[device], memory_order_relaxed),
        .syncs = stats->value[SG_STAT_host_waits],
        .device_allocs =
            count_less(stats->value[SG_STAT_calls_create] + stats->value[SG_STAT_calls_alloc], segments->made),
        .device_frees =
            count_less(stats->value[SG_STAT_calls_release] + stats->value[SG_STAT_calls_free], segments->gone),
    };
}

/* Member by member: the structure is an array of counters. */
static struct totals totals_since(const struct totals *now, const struct totals *before)
{
    enum { MEMBERS = sizeof(struct totals) / sizeof(uint64_t) };
    uint64_t value[MEMBERS], base[MEMBERS];
    struct totals since;
    memcpy(value, now, sizeof value);
    memcpy(base, before, sizeof base);
    for (int i = 0; i < MEMBERS; i++)
        value[i] = count_less(value[i], base[i]);
    memcpy(&since, value, sizeof since);
    return since;
}

/* The core's counts of a moment ago, and the totals and segments by them. False where PyTorch's tensors don't come here. */
static bool totals_read(int device, struct sg_stats *ret_stats, struct sg_torch_segments *ret_segments,
    struct totals *ret_totals)
{
    struct sg_core *core = sg_torch_direct() && device >= 0 && device < SG_DEVICES_MAX ? sg_enter() : NULL;
    bool known = core && sg_core_stats_recent(core, device, ret_stats);
    if (core)
        sg_leave();
    if (!known)
        return false;
    *ret_segments = sg_torch_segments_of(device);
    *ret_totals = totals_of(ret_stats, ret_segments, device);
    return true;
}

/* Adds the core's counts to PyTorch's, family by family. Segments of PyTorch's cache are blocks of ours: they are taken
   off first, since its own counts have what lies in them. */
static void add_all(struct counts *counts, struct more_counts *more, int device, const struct sg_stats *stats,
    const struct sg_torch_segments *segments, const struct totals *totals)
{
    const struct sg_torch_peaks own = sg_torch_peaks_of(device);
    const struct addition blocks = {stats, own.level, &own, signed_of(segments->count), 0},
                          pages = {stats, stats->peak, &own, 0, 0},
                          bytes = {stats, own.level, &own, signed_of(segments->bytes),
                              bytes_beyond(&counts->reserved_bytes[ALL], segments, &own)};
    uint64_t page_bytes = stats->value[SG_STAT_pages] ? stats->value[SG_STAT_reserved_bytes] / stats->value[SG_STAT_pages] : 0;
    add_level(counts->allocation, &blocks, SG_STAT_allocations);
    add_level(counts->active, &blocks, SG_STAT_allocations);
    add_level(counts->segment, &pages, SG_STAT_pages);
    add_bytes(counts->allocated_bytes, &bytes, SG_STAT_allocated_bytes);
    add_bytes(more->requested_bytes, &bytes, SG_STAT_requested_bytes);
    add_bytes(more->active_bytes, &bytes, SG_STAT_active_bytes);
    add_level(more->inactive_split_bytes, &pages, SG_STAT_inactive_split_bytes);
    add_bytes(counts->reserved_bytes, &bytes, SG_STAT_reserved_bytes);
    add_totals(counts->allocation, totals->allocs, totals->frees);
    add_totals(counts->active, totals->allocs, totals->frees);
    add_totals(counts->segment, totals->pages, totals->released);
    add_totals(counts->reserved_bytes, totals->pages * page_bytes, totals->released * page_bytes);
    add_totals(counts->allocated_bytes, totals->bytes, totals->freed_bytes);
    add_totals(more->requested_bytes, totals->bytes, totals->freed_bytes);
    add_totals(more->active_bytes, totals->bytes, totals->freed_bytes);
    more->retries += signed_of(totals->retries);
    more->ooms += signed_of(totals->ooms);
    more->syncs += signed_of(totals->syncs);
    more->device_allocs += signed_of(totals->device_allocs);
    more->device_frees += signed_of(totals->device_frees);
}

/* Counts of a moment ago are enough, so the core's lock is not taken where another thread has it. */
void sg_torch_counts_add(void *statistics, size_t map_bytes, int device)
{
    struct counts *counts = statistics;
    struct sg_stats stats;
    struct sg_torch_segments segments;
    struct totals now;
    if (!totals_read(device, &stats, &segments, &now))
        return;
    sg_process_lock(SG_LOCK_TORCH);
    struct totals totals = totals_since(&now, &ever.before[device]);
    sg_process_unlock(SG_LOCK_TORCH);
    add_all(counts, (void *)((char *)(counts + 1) + map_bytes), device, &stats, &segments, &totals);
}

void sg_torch_counts_reset(int device)
{
    if (!sg_torch_direct())
        return;
    segalloc_reset_peaks(device);
    sg_torch_peaks_reset(device);
}

/* PyTorch's totals begin anew by its own function; ours begin from what they are now. */
void sg_torch_counts_reset_totals(int device)
{
    struct sg_stats stats;
    struct sg_torch_segments segments;
    struct totals now;
    if (!totals_read(device, &stats, &segments, &now))
        return;
    sg_process_lock(SG_LOCK_TORCH);
    ever.before[device] = now;
    sg_process_unlock(SG_LOCK_TORCH);
}

void sg_torch_counts_retry(int device)
{
    if (device >= 0 && device < SG_DEVICES_MAX)
        atomic_fetch_add_explicit(&ever.retries[device], 1, memory_order_relaxed);
}

void sg_torch_counts_oom(int device)
{
    if (device >= 0 && device < SG_DEVICES_MAX)
        atomic_fetch_add_explicit(&ever.ooms[device], 1, memory_order_relaxed);
}
