#include "core_state.h"
#include "torch/torch_counts.h"

#include <stdint.h>

#include "process/process.h"
#include "segalloc/segalloc.h"
#include "torch/torch.h"

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
};

static int64_t signed_of(uint64_t value)
{
    return value < INT64_MAX ? (int64_t)value : INT64_MAX;
}

static int64_t over(int64_t value, int64_t base)
{
    return value > base ? value - base : 0;
}

/* Adds a level, less what PyTorch's own segments, which are blocks of ours, make of it. */
static void add_level(struct count *count, const struct sg_stats *stats, enum sg_stat level, int64_t theirs)
{
    int64_t now = over(signed_of(stats->value[level]), theirs);
    int64_t peak = over(signed_of(stats->peak[level]), theirs);
    count[ALL].current += now;
    count[ALL].peak += peak;
    count[LARGE].current += now;
    count[LARGE].peak += peak;
}

static void add_totals(struct count *count, const struct sg_stats *stats, enum sg_stat allocated, enum sg_stat freed,
    const struct count *theirs)
{
    int64_t in = over(signed_of(stats->value[allocated]), theirs->allocated);
    int64_t out = over(signed_of(stats->value[freed]), theirs->freed);
    count[ALL].allocated += in;
    count[ALL].freed += out;
    count[LARGE].allocated += in;
    count[LARGE].freed += out;
}

void sg_torch_counts_add(void *statistics, size_t map_bytes, int device)
{
    struct counts *counts = statistics;
    struct more_counts *more = (void *)((char *)(counts + 1) + map_bytes);
    struct sg_stats stats;
    struct sg_core *core = sg_torch_direct() ? sg_enter() : NULL;
    bool known = core && sg_core_stats_recent(core, device, &stats);
    if (core)
        sg_leave();
    if (!known)
        return;
    /* Once the cache is on again, its segments are served here as well, and are no tensors. */
    struct count blocks = {0}, bytes = {0};
    if (sg_torch_switched()) {
        blocks = counts->segment[ALL];
        bytes = counts->reserved_bytes[ALL];
    }
    add_level(counts->allocation, &stats, SG_STAT_allocations, blocks.current);
    add_level(counts->active, &stats, SG_STAT_allocations, blocks.current);
    add_level(counts->segment, &stats, SG_STAT_pages, 0);
    add_level(counts->allocated_bytes, &stats, SG_STAT_allocated_bytes, bytes.current);
    add_level(more->requested_bytes, &stats, SG_STAT_requested_bytes, bytes.current);
    add_level(more->active_bytes, &stats, SG_STAT_active_bytes, bytes.current);
    add_level(more->inactive_split_bytes, &stats, SG_STAT_inactive_split_bytes, 0);
    add_level(counts->reserved_bytes, &stats, SG_STAT_reserved_bytes, bytes.current);
    add_totals(counts->allocation, &stats, SG_STAT_allocs, SG_STAT_frees, &blocks);
    add_totals(counts->active, &stats, SG_STAT_allocs, SG_STAT_frees, &blocks);
    add_totals(counts->allocated_bytes, &stats, SG_STAT_allocated_total_bytes, SG_STAT_freed_total_bytes, &bytes);
    add_totals(more->requested_bytes, &stats, SG_STAT_allocated_total_bytes, SG_STAT_freed_total_bytes, &bytes);
    add_totals(more->active_bytes, &stats, SG_STAT_allocated_total_bytes, SG_STAT_freed_total_bytes, &bytes);
}

void sg_torch_counts_reset(int device)
{
    if (sg_torch_direct())
        segalloc_reset_peaks(device);
}
