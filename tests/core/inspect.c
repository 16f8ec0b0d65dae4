#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "inspect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "check.h"
#include "rooms.h"
#include "strict_kept.h"

bool inspect_capturing;

static bool record_begin(void)
{
    return !inspect_capturing;
}

static void record_end(void)
{
}

struct sg_core *inspect_start(const char *text, uint64_t total)
{
    struct sg_conf conf;
    inspect_capturing = false;
    strict_reset(2, total, 2 << 20);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    struct sg_core *core = sg_core_create(&(struct sg_core_params){.conf = &conf,
        .driver = &strict_driver,
        .callbacks = {.record_begin = record_begin, .record_end = record_end}});
    assert_non_null(core);
    return core;
}

struct sums {
    uint64_t blocks, paused, pending, requested, mapped, small, count, whole, old;
};

static void add_region(const struct sg_device *device, const struct sg_region *region, struct sums *sums)
{
    const struct sg_extent *extent;
    uint64_t page_bytes = (uint64_t)region->page_units << SG_UNIT_SHIFT;
    uint32_t mapped = 0, old = 0;
    bool small = sg_purpose_kind(device->regions.purpose[region->index]) == SG_KIND_SMALL;
    sg_lock((struct sg_lock *)&device->lock);
    sg_region_check(region);
    sg_unlock((struct sg_lock *)&device->lock);
    for (uint32_t id = region->first; id; id = extent->next) {
        extent = &device->regions.extents.extent[id];
        uint64_t bytes = (uint64_t)extent->size << SG_UNIT_SHIFT;
        if (extent->state == SG_EXTENT_BLOCK || extent->state == SG_EXTENT_PENDING)
            assert_int_equal(extent->region, region->index);
        if (extent->state == SG_EXTENT_BLOCK) {
            sums->blocks += bytes;
            sums->requested += extent->requested;
            sums->count++;
            sums->small += small ? bytes : 0;
        }
        if (extent->state == SG_EXTENT_PAUSED) {
            sums->paused += bytes;
            sums->count++;
        }
        sums->pending += extent->state == SG_EXTENT_PENDING ? bytes : 0;
    }
    for (uint32_t page = 0; page < region->pages; page++) {
        CUmemGenericAllocationHandle handle = region->memory.handle[page];
        if (handle == SG_PAGE_ALIAS) {
            const struct sg_region *now = region;
            uint32_t alias_target = page;
            /* each of a chain knows the next */
            for (bool first = true; now->memory.handle[alias_target] == SG_PAGE_ALIAS; first = false) {
                const struct sg_region *next = device->regions.region[now->memory.alias_target[alias_target] >> 32];
                assert_true(first || now->memory.pin[alias_target] >= SG_PIN_ALIASED);
                alias_target = (uint32_t)now->memory.alias_target[alias_target];
                now = next;
            }
            assert_true(now->memory.pin[alias_target] >= SG_PIN_ALIASED);
            if (strict_mapped(region->base + page * page_bytes, page_bytes) != now->memory.handle[alias_target])
                fail_msg("page %u of region %u has lost its old address", alias_target, now->index);
            old++;
        }
        if (!sg_page_is_there(handle))
            continue;
        mapped++;
        if (strict_mapped(region->base + page * page_bytes, page_bytes) != handle)
            fail_msg("page %u of region %u is not mapped where the core believes it is", page, region->index);
        uint64_t unused;
        if (!strict_backing(region->base + page * page_bytes, page_bytes, device->ordinal, &unused))
            fail_msg("page %u of region %u cannot be accessed", page, region->index);
    }
    assert_int_equal(mapped, region->memory.mapped);
    assert_int_equal(old, region->memory.stale);
    sums->old += old * page_bytes;
    sums->mapped += mapped * page_bytes;
    sums->whole += (region->lookup.whole_free + region->quick.whole_deferred) * page_bytes;
}

static void inspect_device(struct sg_device *device)
{
    struct sums sums = {0};
    struct sg_stats stats;
    for (uint32_t i = 0; i < device->regions.count; i++)
        if (sg_purpose_kind(device->regions.purpose[i]) != SG_KIND_COUNT)
            add_region(device, device->regions.region[i], &sums);
    assert_true(sg_core_stats(device->core, device->ordinal, &stats));
    if (device->fixed) {
        const struct sg_segments_usage fixed = sg_segments_usage(device);
        sums.requested += fixed.requested;
        sums.blocks += fixed.allocated;
        sums.count += fixed.blocks;
        sums.mapped += fixed.reserved;
    }
    const uint64_t *value = stats.value;
    assert_int_equal(value[SG_STAT_requested_bytes], sums.requested);
    assert_int_equal(value[SG_STAT_allocated_bytes], sums.blocks);
    assert_int_equal(value[SG_STAT_pending_bytes], sums.pending);
    assert_int_equal(value[SG_STAT_aliased_bytes], sums.old);
    assert_int_equal(value[SG_STAT_active_bytes], sums.blocks + sums.pending);
    assert_int_equal(value[SG_STAT_reserved_bytes], sums.mapped);
    assert_int_equal(value[SG_STAT_stranded_bytes], sums.mapped - sums.blocks - sums.pending);
    assert_int_equal(value[SG_STAT_inactive_split_bytes], sums.mapped - sums.blocks - sums.pending - sums.whole);
    assert_int_equal(value[SG_STAT_small_allocated_bytes], sums.small);
    assert_int_equal(value[SG_STAT_allocations], sums.count);
    assert_int_equal(value[SG_STAT_allocs] - value[SG_STAT_frees], sums.count);
    assert_int_equal(value[SG_STAT_paused_bytes], sums.paused);
    assert_int_equal(value[SG_STAT_allocated_total_bytes] - value[SG_STAT_freed_total_bytes], sums.blocks + sums.paused);
    assert_true(value[SG_STAT_requested_bytes] <= value[SG_STAT_allocated_bytes]);
    assert_true(value[SG_STAT_allocated_bytes] + value[SG_STAT_pending_bytes] <= value[SG_STAT_reserved_bytes]);
    assert_true(value[SG_STAT_reserved_bytes] - value[SG_STAT_overflow_bytes] <= device->capacity_bytes);
    sums.mapped -= value[SG_STAT_overflow_bytes];
    for (int i = 0; i < SG_STAT_COUNT; i++)
        assert_true(stats.peak[i] == 0 || stats.peak[i] >= value[i]);
    if (strict_used(device->ordinal) > sums.mapped + strict_stuck(device->ordinal) ||
        strict_used(device->ordinal) < sums.mapped)
        fail_msg("the core holds %llu bytes, the driver has given it %llu", (unsigned long long)sums.mapped,
                 (unsigned long long)strict_used(device->ordinal));
}

void inspect(struct sg_core *core, int devices)
{
    strict_expect_kept();
    for (int i = 0; i < devices; i++)
        if (core->device[i] && core->device[i]->granularity)
            inspect_device(core->device[i]);
}

void inspect_empty(struct sg_core *core, int devices)
{
    inspect(core, devices);
    for (int i = 0; i < devices; i++) {
        struct sg_stats stats;
        if (!sg_core_stats(core, i, &stats))
            continue;
        static const enum sg_stat zero[] = {SG_STAT_requested_bytes, SG_STAT_allocated_bytes, SG_STAT_pending_bytes,
            SG_STAT_reserved_bytes, SG_STAT_active_bytes, SG_STAT_inactive_split_bytes, SG_STAT_stranded_bytes,
            SG_STAT_small_allocated_bytes, SG_STAT_small_reserved_bytes, SG_STAT_allocations, SG_STAT_pages,
            SG_STAT_largest_free_bytes};
        for (size_t k = 0; k < sizeof zero / sizeof *zero; k++)
            if (stats.value[zero[k]])
                fail_msg("%s of device %d is %llu when all is given back", sg_stat_info(zero[k])->name, i,
                    (unsigned long long)stats.value[zero[k]]);
    }
}
