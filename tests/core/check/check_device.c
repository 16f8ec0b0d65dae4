#include "check.h"

#include <string.h>

#include "rooms.h"
#include "caching_allocator.h"

#define CHECK_FILE "core/check/check_device.c"
#include "check_parts.h"

enum { TARGET_SHIFT = 32 };

/* A page behind an old address is mapped elsewhere, perhaps by way of more old addresses, and may not move there. */
static const char *alias_target_broken(const struct sg_device *device, const struct sg_region *region, uint32_t page)
{
    const struct sg_region *now = region;
    for (uint32_t links = 0; now->memory.handle[page] == SG_PAGE_ALIAS; links++) {
        uint64_t alias_target = now->memory.alias_target[page];
        MUST(links <= device->accounts.usage.aliased.now >> SG_UNIT_SHIFT);
        MUST(alias_target >> TARGET_SHIFT < device->regions.count);
        now = device->regions.region[alias_target >> TARGET_SHIFT];
        page = (uint32_t)alias_target;
        MUST(page < now->pages && now->page_units == region->page_units);
        MUST(now->memory.pin[page] >= SG_PIN_ALIASED);
    }
    MUST(sg_page_is_there(now->memory.handle[page]));
    return NULL;
}

/* Busy extents, no operation being under way: in the queue of old addresses; the others are lost. */
struct busy {
    uint64_t queued;
};

static const char *stale_queue_broken(const struct sg_device *device, struct busy *busy)
{
    const struct sg_extent *extents = device->regions.extents.extent;
    uint32_t last = 0;
    uint64_t most = device->regions.extents.live;
    for (uint32_t id = device->aliases.stale_queue.first; id; last = id, id = extents[id].later) {
        MUST(most-- > 0);
        MUST(extents[id].state == SG_EXTENT_BUSY && extents[id].region < device->regions.count);
        const struct sg_region *region = device->regions.region[extents[id].region];
        MUST(extents[id].begin % region->page_units == 0 && extents[id].size % region->page_units == 0);
        for (uint32_t page = page_of(region, extents[id].begin); page < page_of(region,
            extent_end(&extents[id])); page++) {
            MUST(region->memory.handle[page] == SG_PAGE_ALIAS);
            PASS(alias_target_broken(device, region, page));
        }
        busy->queued++;
    }
    MUST(device->aliases.stale_queue.last == last);
    return NULL;
}

static const char *queue_broken(const struct sg_device *device, const struct sg_pending_queue *queue, bool all,
    uint64_t *left)
{
    uint64_t seq = 0;
    uint32_t last = 0;
    for (uint32_t id = queue->first; id; last = id, id = device->regions.extents.extent[id].later) {
        const struct sg_extent *extent = &device->regions.extents.extent[id];
        MUST(extent->state == SG_EXTENT_PENDING && extent->region < device->regions.count);
        MUST((extent->users_mask & 1) == all && extent->users_mask != 0);
        MUST(extent->seq <= device->clocks.seq && (!all || extent->seq >= seq));
        MUST(*left > 0);
        seq = extent->seq;
        --*left;
    }
    MUST(queue->last == last || (!queue->first && !queue->last));
    return NULL;
}

static const char *gauges_broken(const struct sg_device *device)
{
    const struct sg_usage *usage = &device->accounts.usage;
    const struct sg_gauge *gauges[] = {
#define GAUGE(name, field, unit, text) &usage->field,
#define TOTAL(name, field, unit, text)
#include "stats.def"
    };
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++) {
        MUST(gauges[i]->now <= gauges[i]->peak);
        MUST(gauges[i]->now <= INT64_MAX);
    }
    MUST(usage->allocs - usage->frees == usage->allocations.now);
    MUST(usage->allocated_total - usage->freed_total == usage->allocated.now + usage->paused.now);
    MUST(usage->requested.now <= usage->allocated.now);
    MUST(usage->active.now == usage->allocated.now + usage->pending.now);
    MUST(usage->active.now <= usage->reserved.now);
    return NULL;
}

struct sg_segments_usage sg_segments_usage(const struct sg_device *device)
{
    const struct sg_segments *segments = device->fixed;
    struct sg_segments_usage held = {.segments = segments->segments};
    for (uint32_t i = 0; i < segments->segments; i++)
        held.reserved += segments->segment[i].bytes;
    for (size_t i = 0; i <= segments->live.mask; i++) {
        const struct sg_extent *extent = &device->regions.extents.extent[segments->live.entry[i].value];
        if (!segments->live.entry[i].value)
            continue;
        held.blocks++;
        held.requested += extent->requested;
        held.allocated += sg_torch_bytes((const struct sg_torch_block *)(uintptr_t)extent->event);
    }
    return held;
}

static const char *usage_broken(const struct sg_device *device, const struct sg_check_sums *sums)
{
    const struct sg_usage *usage = &device->accounts.usage;
    const struct sg_segments_usage fixed = device->fixed ? sg_segments_usage(device) : (struct sg_segments_usage){0};
    MUST(usage->requested.now == sums->requested + fixed.requested);
    MUST(usage->allocated.now == sums->allocated + fixed.allocated);
    MUST(usage->pending.now == sums->pending);
    MUST(usage->reserved.now == sums->mapped + fixed.reserved);
    MUST(usage->allocations.now == sums->blocks + sums->paused_blocks + fixed.blocks);
    MUST(usage->paused.now == sums->paused);
    MUST(usage->pages.now == sums->pages);
    MUST(usage->segments.now == device->regions.count + fixed.segments);
    MUST(usage->small_allocated.now == sums->small_allocated);
    MUST(usage->small_reserved.now == sums->small_mapped);
    MUST(usage->aliased.now == sums->old);
    MUST(sums->pins_twice == sums->old_pages);
    MUST(sums->whole <= usage->reserved.now - usage->active.now);
    return NULL;
}

static const char *fences_broken(const struct sg_device *device)
{
    uint64_t number = 0, seq = 0, last = 0;
    MUST(device->fences.count <= SG_FENCES && device->fences.idle_count <= SG_IDLE_EVENTS);
    MUST(device->fences.epoch_count <= SG_EPOCHS && device->streams.count <= SG_STREAMS_MAX);
    for (uint32_t i = 0; i < device->fences.count; i++) {
        MUST(device->fences.fence[i].number > number && device->fences.fence[i].number <= device->fences.number);
        MUST(device->fences.fence[i].seq <= device->clocks.seq && device->fences.fence[i].event);
        number = device->fences.fence[i].number;
    }
    for (uint32_t i = 0; i < device->fences.epoch_count; i++) {
        MUST(device->fences.epoch[i].seq >= seq && device->fences.epoch[i].last >= last);
        MUST(device->fences.epoch[i].seq <= device->clocks.seq && device->fences.epoch[i].last <= device->fences.number);
        seq = device->fences.epoch[i].seq;
        last = device->fences.epoch[i].last;
    }
    return NULL;
}

static const char *slot_broken(const struct sg_device *device, sg_slot slot)
{
    const struct sg_stream_clocks *clocks = &device->clocks;
    uint64_t now = device->clocks.seq;
    MUST((clocks->state[slot] != SG_SLOT_UNUSED) == (clocks->alive >> slot & 1));
    if (clocks->state[slot] == SG_SLOT_UNUSED)
        return NULL;
    MUST(clocks->complete[slot] <= now && clocks->fenced[slot] <= now && clocks->host_observed[slot] <= now);
    MUST(clocks->tracked_at[slot] < now && clocks->tracked_at[slot] < clocks->idle_since[slot]);
    MUST(clocks->idle_since[slot] <= clocks->unchanged_since[slot] && clocks->unchanged_since[slot] <= now);
    MUST(clocks->last_submit[slot] <= clocks->idle_since[slot]);
    MUST(clocks->state[slot] != SG_SLOT_GONE || clocks->gone_at[slot] > clocks->complete[slot]);
    for (uint64_t left = clocks->alive; left; left &= left - 1) {
        unsigned other = (unsigned)__builtin_ctzll(left);
        MUST(clocks->ordered_after[slot].at[other] <= now && clocks->ordered_at[slot].at[other] <= now);
        for (uint64_t rest = other == slot ? clocks->alive : 0; rest; rest &= rest - 1) {
            unsigned third = (unsigned)__builtin_ctzll(rest);
            MUST(third == slot || clocks->state[third] != SG_SLOT_ALIVE || clocks->state[slot] != SG_SLOT_ALIVE ||
                 clocks->stream[third].key != clocks->stream[slot].key);
        }
    }
    return NULL;
}

static const char *order_broken(const struct sg_device *device)
{
    const struct sg_stream_clocks *clocks = &device->clocks;
    MUST(!(clocks->alive & 1));
    MUST(!(clocks->needs_fence & ~(clocks->alive | 1)));
    for (uint64_t left = clocks->alive; left; left &= left - 1)
        PASS(slot_broken(device, (sg_slot)__builtin_ctzll(left)));
    for (sg_slot slot = 1; slot < SG_SLOTS; slot++)
        MUST((clocks->state[slot] != SG_SLOT_UNUSED) == (clocks->alive >> slot & 1));
    return NULL;
}

/* Extents that are in use nowhere are in the list of those that can be had, and in it once. */
static const char *nodes_broken(const struct sg_device *device, uint64_t in_regions)
{
    const struct sg_extents *extents = &device->regions.extents;
    uint64_t unused = 0, cells = 0;
    MUST(extents->live == in_regions);
    for (uint32_t id = extents->unused; id; id = extents->extent[id].next) {
        MUST(id < extents->used && extents->extent[id].state == SG_EXTENT_UNUSED);
        MUST(++unused < extents->used);
    }
    for (uint32_t i = 0; i < device->regions.count; i++)
        for (uint32_t id = device->regions.region[i]->first; id; id = extents->extent[id].next)
            cells += id >= extents->capacity;
    MUST(extents->live + unused == extents->used - 1 + cells);
    return NULL;
}

/* Also where there is no memory: who pinned the addresses may be gone. */
static const char *pins_broken(const struct sg_region *region)
{
    uint32_t pinned = 0;
    for (uint32_t page = 0; page < region->pages; page++)
        pinned += region->memory.pin[page] && region->memory.handle[page] != SG_PAGE_ALIAS;
    MUST(pinned == region->memory.pinned);
    return NULL;
}

static const char *region_of_device_broken(const struct sg_device *device, uint32_t i, enum sg_check_depth depth,
    struct sg_check_sums *sums)
{
    const struct sg_region *region = device->regions.region[i];
    struct sg_check_sums before = *sums;
    MUST(region->index == i && sg_purpose_kind(device->regions.purpose[i]) < SG_KIND_COUNT);
    MUST((uint64_t)region->units << SG_UNIT_SHIFT <= region->reserved);
    MUST(sg_purpose_tag(device->regions.purpose[i]) < SG_TAGS);
    for (uint32_t page = 0; page < region->pages; page++)
        MUST(!region->memory.place[page] || (sg_purpose_kind(device->regions.purpose[i]) == SG_KIND_OVERFLOW &&
                                                sg_page_is_there(region->memory.handle[page])));
    MUST(sg_kind_has_one_page(sg_purpose_kind(device->regions.purpose[i]))
             ? region->pages == 1
             : sg_region_page_bytes(region) % device->granularity == 0 &&
                   sg_region_page_bytes(region) <=
                       device->regions.page_bytes[sg_purpose_kind(device->regions.purpose[i])]);
    sg_lock((struct sg_lock *)&device->lock); /* what reads a region asserts it */
    const char *broken = sg_region_broken(region, depth, sums);
    sg_unlock((struct sg_lock *)&device->lock);
    PASS(broken);
    MUST(sums->pages - before.pages == region->memory.mapped);
    MUST(sums->old_pages - before.old_pages == region->memory.stale);
    if (device->tags.paused >> sg_purpose_tag(device->regions.purpose[i]) & 1) { /* all is paused or busy there */
        MUST(sums->blocks == before.blocks && sums->pendings == before.pendings && sums->whole == before.whole);
        sums->busy = before.busy;
    } else {
        MUST(sums->paused_blocks == before.paused_blocks);
    }
    MUST(region->memory.mapped + region->memory.stale <= region->pages);
    if (depth >= SG_CHECK_TABLES)
        PASS(pins_broken(region));
    if (sg_purpose_kind(device->regions.purpose[i]) == SG_KIND_SMALL) {
        sums->small_allocated += sums->allocated - before.allocated;
        sums->small_mapped += sums->mapped - before.mapped;
    }
    return NULL;
}

const char *sg_device_broken(const struct sg_device *device, enum sg_check_depth depth, struct sg_check_sums *ret_sums)
{
    struct busy busy = {0};
    *ret_sums = (struct sg_check_sums){0};
    PASS(gauges_broken(device));
    if (!device->granularity)
        return NULL;
    MUST(device->regions.count <= SG_REGIONS_MAX);
    for (uint32_t i = 0; i < device->regions.count; i++)
        PASS(region_of_device_broken(device, i, depth, ret_sums));
    PASS(usage_broken(device, ret_sums));
    PASS(stale_queue_broken(device, &busy));
    MUST(ret_sums->unasked == 0);
    MUST(ret_sums->empty == 0);
    MUST(ret_sums->lost > 0 || ret_sums->busy == busy.queued);
    uint64_t pending = ret_sums->pendings;
    PASS(queue_broken(device, &device->pending.awaits_all, /* all */ true, &pending));
    PASS(queue_broken(device, &device->pending.awaits_streams, /* all */ false, &pending));
    MUST(pending == 0);
    PASS(fences_broken(device));
    PASS(order_broken(device));
    if (depth >= SG_CHECK_TABLES) {
        PASS(nodes_broken(device, ret_sums->extents + (device->fixed ? sg_segments_usage(device).blocks : 0)));
    }
    return NULL;
}

const char *sg_core_ranges_broken(const struct sg_core *core)
{
    uint32_t ranges = atomic_load(&((struct sg_core *)core)->range_count), ending = 0;
    for (uint32_t i = 0; i < ranges; i++) {
        const struct sg_range *range = &core->range[i];
        MUST(range->begin < range->end && range->region->base == range->begin);
        MUST(range->end - range->begin == range->region->reserved);
        for (uint32_t k = 0; k < i; k++)
            MUST(core->range[k].end <= range->begin || core->range[k].begin >= range->end);
    }
    for (uint32_t i = 0; i < sg_context_list_count(&core->contexts); i++)
        ending += atomic_load(&((struct sg_core *)core)->contexts.ending[i]);
    MUST(ending == atomic_load(&((struct sg_core *)core)->contexts.all_ending));
    return NULL;
}

const char *sg_core_broken(const struct sg_core *core, enum sg_check_depth depth)
{
    PASS(sg_core_ranges_broken(core));
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        struct sg_check_sums sums;
        const struct sg_device *device = atomic_load(&((struct sg_core *)core)->device[i]);
        if (device)
            PASS(sg_device_broken(device, depth, &sums));
    }
    return NULL;
}
