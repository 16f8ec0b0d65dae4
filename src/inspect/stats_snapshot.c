/* The core's own account: the statistics table, and the shortage of a failed allocation.

   Gauges have one peak each, but four readers of it (enum sg_peaks). When one of them begins again, the gauges'
   peaks do, and each of the others keeps in `peak_before` how high they were before. A reader's peak is the larger of
   the two. For example, the peak is 10 GiB when a reader takes it. The gauge goes on from 4, and rises to 6. That
   reader's peak is then 6, the others' still 10. */
#include "inspect/stats_snapshot.h"

#include "core/segments/fixed_segments.h"
#include "core/state/accounts.h"
#include "core/state/locks.h"

/* Writes a gauge into a snapshot. */
static void set_gauge(struct sg_stats *stats, enum sg_stat stat, struct sg_gauge gauge)
{
    stats->value[stat] = gauge.now;
    stats->peak[stat] = gauge.peak;
}

/* The largest block that would fit without a new page, in bytes, over all regions. */
static uint64_t largest_free_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t largest = 0;
    for (uint32_t i = 0; i < device->regions.count; i++) {
        uint64_t units = sg_region_largest_locked(device->regions.region[i]);
        largest = units > largest ? units : largest;
    }
    return largest << SG_UNIT_SHIFT;
}

/* Collects all statistics, by the rows of stats.def. Levels that follow from others are brought up to date first. */
static void collect_locked(struct sg_device *device, struct sg_stats *ret) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_usage *usage = &device->accounts.usage;
    *ret = (struct sg_stats){0};
    sg_usage_derive_locked(device);
    for (int i = 0; i < SG_STAT_COUNT; i++)
        ret->value[i] = __atomic_load_n(&device->accounts.counter[i], __ATOMIC_RELAXED);
#define GAUGE(name, field, unit, text) set_gauge(ret, SG_STAT_##name, usage->field);
#define TOTAL(name, field, unit, text) ret->value[SG_STAT_##name] = usage->field;
#include "base/stats.def"
    ret->value[SG_STAT_largest_free_bytes] = ret->peak[SG_STAT_largest_free_bytes] = largest_free_locked(device);
    ret->value[SG_STAT_calls_sync] += usage->strict_frees;
}

/* Lets the peaks of the gauges begin again for one reader; the others keep what they were before. After
   collect_locked(), under the same lock. */
static void begin_peaks_locked(struct sg_device *device, const struct sg_stats *stats, enum sg_peaks again)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_usage *usage = &device->accounts.usage;
    struct sg_gauge *gauges[] = {
#define GAUGE(name, field, unit, text) &usage->field,
#define TOTAL(name, field, unit, text)
#include "base/stats.def"
    };
    /* The reader that begins again forgets what was before; each other one keeps the higher of both. */
    for (int since = 0; since < SG_PEAKS_COUNT; since++) {
        for (int i = 0; i < SG_STAT_COUNT; i++) {
            uint64_t *before = &device->accounts.peak_before[since][i];
            *before = since == (int)again ? 0 : stats->peak[i] > *before ? stats->peak[i] : *before;
        }
    }
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++)
        gauges[i]->peak = gauges[i]->now;
}

/* The snapshot of a device that has served nothing of ours: other calls may have taken memory of it. False: none
   has. */
static bool snapshot_unready(struct sg_core *core, int ordinal, struct sg_stats *ret)
{
    if ((unsigned)ordinal >= SG_DEVICES_MAX)
        return false;
    sg_setup_lock(core);
    const struct sg_unready unready = core->unready[ordinal];
    sg_setup_unlock(core);
    if (!unready.outside_allocs && !unready.refused)
        return false;
    *ret = (struct sg_stats){0};
    ret->value[SG_STAT_outside_allocs] = unready.outside_allocs;
    ret->value[SG_STAT_refused] = unready.refused;
    ret->value[SG_STAT_ooms] = unready.ooms;
    return true;
}

/* Takes a snapshot for one reader of peaks, and with `begin` lets its peaks begin again. False: the device was never
   used. */
static bool stats_snapshot(struct sg_core *core, int ordinal, enum sg_peaks since, bool begin, struct sg_stats *ret)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return snapshot_unready(core, ordinal, ret);
    sg_device_lock(device);
    collect_locked(device, ret);
    const uint64_t *before = device->accounts.peak_before[since];
    struct sg_stats now = *ret;
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        if (ret->peak[i] < before[i])
            ret->peak[i] = before[i];
    }
    if (begin)
        begin_peaks_locked(device, &now, since);
    sg_device_unlock(device);
    return true;
}

bool sg_core_stats(struct sg_core *core, int ordinal, struct sg_stats *ret)
{
    return stats_snapshot(core, ordinal, SG_PEAKS_OF_ALL, /* begin */ false, ret);
}

bool sg_core_stats_recent(struct sg_core *core, int ordinal, struct sg_stats *ret)
{
    return stats_snapshot(core, ordinal, SG_PEAKS_RESET, /* begin */ false, ret);
}

void sg_core_reset_peaks(struct sg_core *core, int ordinal)
{
    struct sg_stats stats;
    (void)stats_snapshot(core, ordinal, SG_PEAKS_RESET, /* begin */ true, &stats);
}

bool sg_core_take_peaks(struct sg_core *core, int ordinal, struct sg_stats *ret)
{
    return stats_snapshot(core, ordinal, SG_PEAKS_TAKEN, /* begin */ true, ret);
}

bool sg_core_interval_peaks(struct sg_core *core, int ordinal, bool ends, struct sg_stats *ret)
{
    return sg_device_known(core, ordinal) && stats_snapshot(core, ordinal, SG_PEAKS_INTERVAL, ends, ret);
}

bool sg_core_shortage(struct sg_core *core, int ordinal, struct sg_shortage *ret)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return false;
    sg_device_lock(device);
    *ret = device->room.shortage;
    sg_device_unlock(device);
    return ret->asked > 0;
}
