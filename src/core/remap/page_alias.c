/* The functions stand in the order of an alias's life. It is allowed, noted and queued. Once its work is complete it
   is found again, and unmapped. The memory of a page counts where its home is. So `pinned` and `mapped` of a region
   leave its aliases out, and `stale` counts them. */
#include "core/remap/page_alias.h"

#include <assert.h>

#include "core/space/placement.h"
#include "core/state/mappings.h"
#include "core/state/replay_steps.h"

enum { REGION_SHIFT = 32 }; /* of the region's index in `alias_target`; the page is below it */

/* True if an alias may be of use: there are free pages with a past, or memory grows short, so that there will be. The
   trial of a device takes a page of the driver's, so it comes before all are taken. For example, a process holds 3 of
   8 GiB and wants 0.5 more. Nothing is free, so nothing is tried. It is tried when 1.5 are wanted: that would be more
   than half. */
static bool is_alias_wanted(struct sg_device *device, size_t bytes)
{
    sg_device_lock(device);
    bool wanted = device->accounts.usage.reserved.now + bytes > device->capacity_bytes / 2;
    for (uint32_t i = 0; i < device->regions.count && !wanted; i++)
        wanted = device->regions.region[i]->owned.ordered && device->regions.region[i]->lookup.whole_free;
    sg_device_unlock(device);
    return wanted;
}

/* True if the device was tried and passed. It asks without wanting first: where it was tried, no page needs to be
   looked at. */
static bool is_alias_tried(struct sg_device *device, size_t bytes)
{
    bool (*tried)(int, bool) = device->core->callbacks.aliases;
    return !tried || tried(device->ordinal, /* wanted */ false) ||
           (is_alias_wanted(device, bytes) && tried(device->ordinal, /* wanted */ true));
}

bool sg_alias_allowed(struct sg_device *device, sg_slot slot, size_t bytes)
{
    const struct sg_core *core = device->core;
    if (!slot || core->conf.alias == SG_ALIAS_OFF)
        return false;
    /* A live capture may record an address that is used much later, so no page leaves an alias during one. */
    bool capture = core->callbacks.record_begin && !core->callbacks.record_begin();
    if (core->callbacks.record_begin && !capture)
        core->callbacks.record_end();
    bool tried = !capture && is_alias_tried(device, bytes);
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    sg_device_lock(device);
    /* Work of peers is not followed, so no fence would show that it is complete. */
    bool allowed = sg_replay_step_outcome(replayed, SEGALLOC_TURN_ALIASES, tried && !device->access.peers);
    sg_emit_step_locked(device, SEGALLOC_TURN_ALIASES, allowed);
    sg_device_unlock(device);
    return allowed;
}

uint32_t sg_alias_room_locked(const struct sg_device *device, const struct sg_region *region)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t pages = sg_mappings_left_locked(device);
    bool wide = region->pages >= 2 * region->memory.mapped;
    if (!wide)
        return 0;
    return pages < region->pages ? pages : region->pages;
}

/* Makes a page of `region` the alias of page `at_home` of `home`, where its memory is by now. */
static void alias_note_locked(struct sg_device *device, struct sg_region *region, uint32_t page, struct sg_region *home,
    uint32_t at_home) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    assert(home->memory.pin[at_home] <= UINT8_MAX - SG_PIN_ALIASED && region->memory.handle[page] != SG_PAGE_ALIAS);
    /* `pinned` counts pages by where their memory is, so the pin of this address leaves the count and that of the
       home joins. */
    region->memory.pinned -= region->memory.pin[page] != 0;
    region->memory.handle[page] = SG_PAGE_ALIAS;
    region->memory.alias_target[page] = (uint64_t)home->index << REGION_SHIFT | at_home;
    region->memory.stale++;
    home->memory.pinned += !home->memory.pin[at_home];
    home->memory.pin[at_home] += SG_PIN_ALIASED;
    sg_gauge_add(&device->accounts.usage.aliased, sg_region_page_bytes(region));
    sg_count(device, SG_STAT_aliased_pages, 1);
}

/* Queues a busy extent of aliases for the unmap that follows its work. */
static void alias_queue_locked(struct sg_device *device, uint32_t busy) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    device->regions.extents.extent[busy].later = 0;
    if (device->aliases.stale_queue.last)
        device->regions.extents.extent[device->aliases.stale_queue.last].later = busy;
    else
        device->aliases.stale_queue.first = busy;
    device->aliases.stale_queue.last = busy;
}

void sg_alias_keep_locked(struct sg_device *device, const struct sg_page_run *run, struct sg_region *region,
    const CUmemGenericAllocationHandle *target)
{
    SG_ASSERT_HELD(&device->lock);
    for (uint32_t i = 0; i < run->pages; i++)
        alias_note_locked(device, run->region, run->first + i, region, (uint32_t)target[i]);
    alias_queue_locked(device, run->busy);
}

/* True if aliases may be unmapped: nothing can touch them any more, and no older alias of the same memory is left. */
static bool alias_may_go_locked(const struct sg_region *region, uint32_t first, uint32_t pages) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    for (uint32_t page = first; page < first + pages; page++)
        if (region->memory.pin[page] || !sg_after_complete(region->owned.clocks, region->memory.after[page]))
            return false;
    return true;
}

/* Takes the oldest aliases that may be unmapped out of the queue. A younger one may go before an older one, on which
   work still runs. */
static bool alias_take_locked(struct sg_device *device, struct sg_page_run *ret) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t before = 0;
    for (uint32_t id = device->aliases.stale_queue.first; id;
         before = id, id = device->regions.extents.extent[id].later) {
        struct sg_extent *extent = &device->regions.extents.extent[id];
        struct sg_region *region = device->regions.region[extent->region];
        struct sg_page_run run = {.region = region, .first = extent->begin / region->page_units,
            .pages = extent->size / region->page_units, .busy = id};
        if (!alias_may_go_locked(region, run.first, run.pages))
            continue;
        /* Out of the middle of the queue, perhaps. */
        if (before)
            device->regions.extents.extent[before].later = extent->later;
        else
            device->aliases.stale_queue.first = extent->later;
        if (!extent->later)
            device->aliases.stale_queue.last = before;
        *ret = run;
        return true;
    }
    return false;
}

/* Takes the next aliases to unmap, in a replay only where the trace has that step. */
static bool alias_next_growing(struct sg_device *device, struct sg_page_run *ret) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    if (!sg_replay_step_is(sg_replay_step(device), SEGALLOC_TURN_LATE_UNMAP))
        return false;
    sg_device_lock(device);
    bool found = alias_take_locked(device, ret);
    if (found)
        sg_emit_step_locked(device, SEGALLOC_TURN_LATE_UNMAP, ret->pages);
    sg_device_unlock(device);
    return found;
}

/* Ends aliases that are unmapped, or lost where the driver refused. Either way the pages that had them are ordinary
   ones again. */
static void alias_forget_locked(struct sg_device *device, const struct sg_page_run *run, bool unmapped)
    SG_REQUIRES(lock) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->lock);
    SG_ASSERT_HELD(&device->growth.grow);
    struct sg_region *region = run->region;
    region->memory.stale -= run->pages;
    sg_gauge_sub(&device->accounts.usage.aliased, run->pages * sg_region_page_bytes(region));
    for (uint32_t page = run->first; page < run->first + run->pages; page++) {
        struct sg_region *now = device->regions.region[region->memory.alias_target[page] >> REGION_SHIFT];
        uint32_t target = (uint32_t)region->memory.alias_target[page];
        region->memory.handle[page] = unmapped ? 0 : SG_PAGE_LOST;
        /* The end of the core has cleared all pins. */
        if (now->memory.pin[target] < SG_PIN_ALIASED)
            continue;
        now->memory.pin[target] -= SG_PIN_ALIASED;
        now->memory.pinned -= !now->memory.pin[target] && now->memory.handle[target] != SG_PAGE_ALIAS;
    }
    if (!unmapped)
        return;
    sg_region_cut_done_locked(region, run->busy);
    sg_count(device, SG_STAT_late_unmaps, run->pages);
    sg_count(device, SG_STAT_move_cost_ns, sg_cost_ns(device->accounts.cost, SG_COST_unmap, 1, run->pages));
}

void sg_alias_unmap_completed_growing(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->growth.grow);
    struct sg_page_run run;
    while (alias_next_growing(device, &run)) {
        const struct segalloc_trace_record *replayed = sg_replay_step(device);
        size_t page_bytes = sg_region_page_bytes(run.region);
        sg_count(device, SG_STAT_calls_unmap, 1);
        sg_count(device, SG_STAT_handles_unmap, run.pages);
        bool unmapped = sg_pages_unmap(&device->pages, run.region->base + run.first * page_bytes,
                            run.pages * page_bytes) == CUDA_SUCCESS;
        unmapped = sg_replay_step_outcome(replayed, SEGALLOC_TURN_UNMAPPED, unmapped);
        sg_device_lock(device);
        alias_forget_locked(device, &run, unmapped);
        sg_emit_step_locked(device, SEGALLOC_TURN_UNMAPPED, unmapped);
        sg_device_unlock(device);
    }
}
