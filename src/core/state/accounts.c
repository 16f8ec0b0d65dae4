/* Each function changes levels for one event: pages that come or go, a block that is handed out, released, or used on
   one more stream. Levels of gauges keep their peaks themselves (base/usage.h). Records are emitted here where the
   event is the block's, and by the caller where only that knows why. */
#include "core/state/accounts.h"

#include "core/state/clocks.h"
#include "core/space/paused.h"
#include "core/state/mappings.h"
#include "core/state/tags.h"
#include "core/state/trace_streams.h"

void sg_usage_derive_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_usage *usage = &device->accounts.usage;
    uint64_t whole = 0;
    for (uint32_t i = 0; i < device->regions.count; i++) {
        const struct sg_region *region = device->regions.region[i];
        whole += (uint64_t)(region->lookup.whole_free + region->quick.whole_deferred) * region->page_units;
    }
    whole <<= SG_UNIT_SHIFT;
    uint64_t stranded = usage->reserved.now - usage->active.now;
    /* PyTorch's statistic of that name: free memory that is not in whole pages, which no trim could give back. */
    sg_gauge_set(&usage->stranded, stranded);
    sg_gauge_set(&usage->mappings, sg_mappings_now_locked(device));
    sg_gauge_set(&usage->inactive_split, stranded - whole);
}

uint64_t sg_device_idle_locked(const struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t idle = 0;
    for (uint32_t i = 0; i < device->regions.count; i++) {
        const struct sg_region *region = device->regions.region[i];
        idle += ((uint64_t)sg_region_idle_locked(region) * region->page_units) << SG_UNIT_SHIFT;
    }
    return idle;
}

void sg_device_count_pages_locked(struct sg_device *device, struct sg_region *region, int64_t pages)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t count = (uint32_t)(pages < 0 ? -pages : pages); /* of a region's */
    uint64_t bytes = count * sg_region_page_bytes(region);
    bool small = sg_purpose_kind(device->regions.purpose[region->index]) == SG_KIND_SMALL;
    struct sg_usage *usage = &device->accounts.usage;
    struct sg_gauge *tagged = &device->tags.of[sg_purpose_tag(device->regions.purpose[region->index])].reserved;
    if (pages >= 0) {
        sg_gauge_add(tagged, bytes);
        region->memory.mapped += count;
        sg_gauge_add(&usage->reserved, bytes);
        sg_gauge_add(&usage->pages, count);
        if (small)
            sg_gauge_add(&usage->small_reserved, bytes);
    } else {
        sg_gauge_sub(tagged, bytes);
        region->memory.mapped -= count;
        sg_gauge_sub(&usage->reserved, bytes);
        sg_gauge_sub(&usage->pages, count);
        if (small)
            sg_gauge_sub(&usage->small_reserved, bytes);
    }
    if (sg_purpose_tag(device->regions.purpose[region->index]))
        sg_emit(device, SEGALLOC_RECORD_TAG_PAGES, 0, sg_device_unknown_stream(device),
            sg_purpose_tag(device->regions.purpose[region->index]), tagged->now);
}

uint32_t sg_device_uncount_far_locked(struct sg_device *device, struct sg_region *region, uint32_t first, uint32_t pages)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t far = 0, peer = 0;
    for (uint32_t page = first; page < first + pages; page++) {
        far += region->memory.place[page] != SG_PLACE_NEAR;
        peer += region->memory.place[page] == SG_PLACE_PEER;
        region->memory.place[page] = SG_PLACE_NEAR;
    }
    region->memory.far_pages -= far;
    sg_gauge_sub(&device->accounts.usage.overflow, far * sg_region_page_bytes(region));
    sg_gauge_sub(&device->accounts.usage.overflow_peer, peer * sg_region_page_bytes(region));
    return far;
}

bool sg_device_drain_quick_lists_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    bool any = false;
    for (uint32_t i = 0; i < device->regions.count; i++)
        any = sg_region_drain_quick_lists_locked(device->regions.region[i]) || any;
    return any;
}

bool sg_device_is_shared_locked(const struct sg_device *device, sg_slot slot)
{
    SG_ASSERT_HELD(&device->lock);
    for (uint32_t i = 0; i < device->regions.count; i++)
        if (device->regions.region[i]->owned.owners & ~(UINT64_C(1) << slot | 1))
            return true;
    return false;
}

/* Notes the rest of a block: its stream, its site and its record. Apart, so that the plain case of one device without
   streams, sites or an observer stays short. */
static __attribute__((noinline)) CUdeviceptr describe_block_locked(struct sg_device *device, uint32_t id,
    CUdeviceptr address, const struct sg_tag *tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    if (tag->has_stream || tag->slot || device->ordinal)
        extent->stream = sg_device_stream_locked(device, tag);
    if (tag->slot)
        extent->idle_before = sg_clocks_idle_before(&device->clocks, tag->slot, extent->alloc_seq);
    sg_extent_set_site_locked(&device->regions.extents, id, tag->site, tag->phase);
    if (tag->memory_tag)
        sg_gauge_add(&device->tags.of[tag->memory_tag].requested, extent->requested);
    sg_emit_tag_locked(device, tag->memory_tag);
    sg_emit(device, SEGALLOC_RECORD_ALLOCATE, tag->torch ? SEGALLOC_FLAG_TORCH : 0, extent->stream, address,
        extent->requested);
    return address;
}

CUdeviceptr sg_device_hand_out_locked(struct sg_device *device, uint32_t id, size_t bytes, const struct sg_tag *tag)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    const struct sg_region *region = device->regions.region[extent->region];
    uint64_t rounded = (uint64_t)extent->size << SG_UNIT_SHIFT;
    extent->requested = bytes;
    extent->stream = 0;
    extent->context = (uint64_t)(uintptr_t)tag->context;
    extent->alloc_seq = sg_clocks_tick_locked(device);
    extent->idle_before = 0;
    extent->users_mask = 0;
    sg_usage_allocate(&device->accounts.usage, bytes, rounded,
        sg_purpose_kind(device->regions.purpose[extent->region]) == SG_KIND_SMALL);
    CUdeviceptr address = sg_region_address(region, extent->begin);
    /* Without streams, tags of memory, sites and an observer there is nothing to note, and a bare allocation saves a
       call. The numbers are asked together: one branch for all of them. */
    uint32_t any = tag->has_stream | tag->memory_tag | tag->slot | tag->site | tag->phase | (uint32_t)device->ordinal;
    bool plain = !any && !device->regions.extents.sites && !device->core->observer.emit;
    return plain ? address : describe_block_locked(device, id, address, tag);
}

void sg_device_account_paused_locked(struct sg_device *device, const struct sg_extent *extent)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_usage *usage = &device->accounts.usage;
    uint64_t rounded = (uint64_t)extent->size << SG_UNIT_SHIFT;
    sg_gauge_sub(&usage->requested, extent->requested);
    sg_gauge_sub(&usage->allocated, rounded);
    sg_gauge_sub(&usage->active, rounded);
    if (sg_purpose_kind(device->regions.purpose[extent->region]) == SG_KIND_SMALL)
        sg_gauge_sub(&usage->small_allocated, rounded);
    sg_gauge_add(&usage->paused, rounded);
}

void sg_device_account_woken_locked(struct sg_device *device, const struct sg_extent *extent)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_usage *usage = &device->accounts.usage;
    uint64_t rounded = (uint64_t)extent->size << SG_UNIT_SHIFT;
    sg_gauge_sub(&usage->paused, rounded);
    sg_gauge_add(&usage->requested, extent->requested);
    sg_gauge_add(&usage->allocated, rounded);
    sg_gauge_add(&usage->active, rounded);
    if (sg_purpose_kind(device->regions.purpose[extent->region]) == SG_KIND_SMALL)
        sg_gauge_add(&usage->small_allocated, rounded);
}

void sg_device_release_paused_locked(struct sg_device *device, uint32_t id)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extent = &device->regions.extents.extent[id];
    struct sg_usage *usage = &device->accounts.usage;
    uint64_t rounded = (uint64_t)extent->size << SG_UNIT_SHIFT;
    sg_gauge_sub(&usage->paused, rounded);
    sg_gauge_sub(&usage->allocations, 1);
    usage->frees++;
    usage->freed_total += rounded;
    sg_gauge_sub(&device->tags.of[sg_purpose_tag(device->regions.purpose[extent->region])].requested, extent->requested);
    sg_region_release_paused_locked(device->regions.region[extent->region], id);
}

void sg_device_account_free_locked(struct sg_device *device, const struct sg_extent *extent)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t purpose = device->regions.purpose[extent->region];
    sg_usage_free(&device->accounts.usage, extent->requested, (uint64_t)extent->size << SG_UNIT_SHIFT,
        sg_purpose_kind(purpose) == SG_KIND_SMALL);
    if (__builtin_expect(purpose >= sg_purpose(0, 1), 0))
        sg_gauge_sub(&device->tags.of[sg_purpose_tag(purpose)].requested, extent->requested);
}

void sg_device_release_locked(struct sg_device *device, uint32_t id, sg_slot owner, uint64_t seq)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    struct sg_usage *usage = &device->accounts.usage;
    uint64_t rounded = (uint64_t)extent->size << SG_UNIT_SHIFT;
    /* A pending block left `allocated` when it was suspended, and leaves `pending` now. */
    if (extent->state == SG_EXTENT_PENDING)
        sg_gauge_sub(&usage->pending, rounded);
    else
        sg_device_account_free_locked(device, extent);
    sg_gauge_sub(&usage->active, rounded);
    sg_gauge_set(&usage->stranded, usage->reserved.now - usage->active.now);
    sg_region_release_locked(device->regions.region[extent->region], id, owner, seq);
}

void sg_device_record_stream_locked(struct sg_device *device, uint32_t id, sg_slot slot)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    uint32_t stream = slot ? sg_device_slot_stream(device, slot) : sg_device_unknown_stream(device);
    /* The block's own stream is no other user, and each other one is noted once. */
    if (extent->users_mask >> slot & 1 || (slot && extent->stream == stream))
        return;
    extent->users_mask |= UINT64_C(1) << slot;
    sg_emit(device, SEGALLOC_RECORD_RECORD_STREAM, 0, stream,
        sg_region_address(device->regions.region[extent->region], extent->begin), 0);
}

void sg_device_release_all_locked(struct sg_device *device, struct sg_region *region, CUcontext context)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extents = device->regions.extents.extent;
    uint32_t doomed = 0;
    /* First all are found, then freed: a free joins extents, and a walk over them would lose its place. */
    for (uint32_t id = region->first; id; id = extents[id].next) {
        bool lives = extents[id].state == SG_EXTENT_BLOCK || extents[id].state == SG_EXTENT_PAUSED;
        if (lives && (!context || extents[id].context == (uint64_t)(uintptr_t)context)) {
            extents[id].later = doomed;
            doomed = id;
        }
    }
    while (doomed) {
        uint32_t id = doomed;
        doomed = extents[id].later;
        sg_emit(device, SEGALLOC_RECORD_FREE, SEGALLOC_FLAG_STRICT, extents[id].stream,
            sg_region_address(region, extents[id].begin), extents[id].requested);
        if (extents[id].state == SG_EXTENT_PAUSED)
            sg_device_release_paused_locked(device, id);
        else
            sg_device_release_locked(device, id, 0, 0);
    }
}
