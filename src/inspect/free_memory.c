/* How much memory is free: the answer of cuMemGetInfo, and whether more will be.

   Why the driver's answer is changed: the core holds idle pages, and the driver counts them as used. A program that
   sizes a buffer by cuMemGetInfo would ask for too little. So idle pages count as free, up to the limit.

   For example, the driver says that 4 GiB are free, and 1 GiB is idle here. The limit leaves 3 GiB beyond memory in
   use, so 3 GiB are free. Up to half of the capacity the answer is a multiple of a page, since a block would be made
   of pages. */
#include "inspect/free_memory.h"

#include "core/segments/fixed_segments.h"
#include "core/search/take.h"
#include "core/space/coalesce.h"
#include "core/space/placement.h"
#include "core/state/accounts.h"
#include "core/state/locks.h"
#include "core/state/trace_streams.h"
#include "core/streams/fences.h"

/* True if a pending extent waits for contexts other than its own alone. A strict free has waited for the block's
   context, and natively its memory would be free by then. */
static bool waits_for_other_contexts(const struct sg_extent *extent)
{
    return extent->state == SG_EXTENT_PENDING && extent->context == SG_OWN_CONTEXT_IS_DONE;
}

/* How many pages that may go back lie wholly inside [begin, end), in units. */
static uint64_t pages_between(const struct sg_region *region, uint32_t begin, uint32_t end)
{
    uint64_t pages = 0;
    for (uint32_t page = (begin + region->page_units - 1) / region->page_units;
         (page + 1) * (uint64_t)region->page_units <= end; page++)
        pages += !region->memory.pin[page];
    return pages;
}

/* How many whole pages more the run of free and such pending pieces around one of them has than its free pieces
   have. 0 if the piece is not the first of its kind in the run, so that each run counts once. */
static uint64_t pages_of_run_locked(const struct sg_device *device, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extents = device->regions.extents.extent;
    const struct sg_region *region = device->regions.region[extents[id].region];
    uint32_t first = id, last = 0;
    uint64_t free_pages = 0;
    /* Down to the first piece of the run, then up over all of it. Free pieces are counted apart, because their pages
       are idle already. */
    while (extents[first].prev && extents[extents[first].prev].state == SG_EXTENT_FREE)
        first = extents[first].prev;
    if (extents[first].prev && waits_for_other_contexts(&extents[extents[first].prev]))
        return 0;
    for (uint32_t piece = first;
         piece && (extents[piece].state == SG_EXTENT_FREE || waits_for_other_contexts(&extents[piece]));
         piece = extents[piece].next) {
        if (extents[piece].state == SG_EXTENT_FREE)
            free_pages += pages_between(region, extents[piece].begin, extents[piece].begin + extents[piece].size);
        last = piece;
    }
    return pages_between(region, extents[first].begin, extents[last].begin + extents[last].size) - free_pages;
}

/* Bytes of whole pages without a pin that would be free if memory that waits only for other contexts were. Natively
   it is. */
static uint64_t returnable_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extents = device->regions.extents.extent;
    uint64_t units = 0;
    for (uint32_t id = device->pending.awaits_all.first; id; id = extents[id].later)
        if (waits_for_other_contexts(&extents[id]))
            units += pages_of_run_locked(device, id) * device->regions.region[extents[id].region]->page_units;
    return units << SG_UNIT_SHIFT;
}

/* True if anything else is pending that is not known to be complete. */
static bool has_unfinished_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extents = device->regions.extents.extent;
    uint32_t id = device->pending.awaits_all.first;
    while (id && waits_for_other_contexts(&extents[id]))
        id = extents[id].later;
    if (id)
        return true;
    for (id = device->pending.awaits_streams.first; id; id = extents[id].later)
        if (!sg_after_complete(&device->clocks, (struct sg_after){extents[id].users_mask, extents[id].seq}))
            return true;
    return false;
}

void sg_core_mem_info(struct sg_core *core, int ordinal, size_t *free_bytes, size_t *total_bytes)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device || device->mode == SG_MODE_PASSTHROUGH)
        return;
    /* An allocation may wait for pending memory, so that counts as free where waits are allowed. */
    bool regions = device->granularity, waits = core->conf.wait_limit > 0;
    if (regions)
        sg_device_ask(device, SG_ASK_FENCE);
    uint64_t idle_now = device->fixed && !waits ? sg_segments_idle_now(device) : UINT64_MAX;
    sg_device_lock(device);
    bool joined = sg_device_coalesce_completed_locked(device);
    if (regions && (sg_device_drain_quick_lists_locked(device) || joined))
        sg_emit(device, SEGALLOC_RECORD_MERGE, 0, sg_device_stream_locked(device, &(struct sg_tag){0}), 0, 0);
    uint64_t segments = device->fixed ? sg_segments_idle_locked(device) : 0;
    uint64_t idle = (segments < idle_now ? segments : idle_now) +
                    (regions ? sg_device_idle_locked(device) + (waits ? returnable_locked(device) : 0) : 0);
    uint64_t held = sg_device_held_locked(device) - idle;
    uint64_t available = *free_bytes + idle, allowed = device->capacity_bytes > held ? device->capacity_bytes - held : 0;
    available = available < allowed ? available : allowed;
    /* A block of that size would be made of the regular region's pages, which may be large. */
    if (device->mode == SG_MODE_EXPANDABLE && available <= device->capacity_bytes / 2)
        available -= available % device->regions.page_bytes[SG_KIND_REGULAR];
    *free_bytes = available;
    if (core->conf.limit_visible)
        *total_bytes = device->capacity_bytes;
    sg_device_unlock(device);
}

/* True if whole free pages of a region may go back once work is complete, and not before. */
static bool region_awaits_locked(const struct sg_region *region) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    bool awaits = false;
    for (uint32_t bucket = 0, id; region->owned.ordered && region->lookup.whole_free && !awaits &&
                                  (id = free_next_locked(region, region->page_units, &bucket));) {
        uint32_t end = page_of(region, extent_end(extent_at(region, id)));
        for (uint32_t page = page_of(region, extent_at(region, id)->begin + region->page_units - 1);
             page < end && !awaits; page++)
            awaits = !region->memory.pin[page] && !sg_region_movable_locked(region, page);
    }
    return awaits;
}

bool sg_core_awaits(struct sg_core *core, int ordinal)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device || device->mode != SG_MODE_EXPANDABLE || core->disabled)
        return false;
    sg_device_lock(device);
    bool awaits = has_unfinished_locked(device);
    for (uint32_t i = 0; i < device->regions.count && !awaits; i++)
        awaits = region_awaits_locked(device->regions.region[i]);
    sg_device_unlock(device);
    return awaits;
}

bool sg_core_awaits_another(struct sg_core *core, int ordinal)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device || core->disabled || !sg_fences_can_wait(device))
        return false;
    sg_device_lock(device);
    uint32_t last = device->pending.awaits_all.last;
    bool another = last && device->regions.extents.extent[last].seq > device->fences.aside;
    sg_device_unlock(device);
    return another;
}
