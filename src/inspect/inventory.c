/* The pieces that a device's addresses hold, and the marks of its pages (core_state.h). */
#include "inspect/inventory.h"

#include "core/state/locks.h"

/* The state of a piece, as the layers above distinguish them: all free states are one. */
static enum sg_piece_state piece_state(const struct sg_extent *extent)
{
    switch (extent->state) {
    case SG_EXTENT_BLOCK:
        return SG_PIECE_ALLOCATED;
    case SG_EXTENT_PENDING:
        return SG_PIECE_PENDING;
    case SG_EXTENT_FREE:
    case SG_EXTENT_DEFERRED:
    case SG_EXTENT_FRAGMENT:
        return SG_PIECE_FREE;
    default:
        return SG_PIECE_NONE; /* no memory is there, or it is about to come or go */
    }
}

/* The stream that a block was allocated for; NULL: unknown. */
static CUstream stream_of_locked(const struct sg_device *device, const struct sg_extent *extent) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t unknown = sg_device_unknown_stream(device);
    sg_slot slot = sg_device_slot_of(device, extent->stream);
    if (slot)
        return device->clocks.stream[slot].handle;
    return extent->stream > unknown ? device->streams.stream[extent->stream - unknown - 1] : NULL;
}

/* Writes one piece into the list of a caller. */
typedef void visit_fn(void *list, size_t at, const struct sg_placed *placed);

/* Visits up to `room` pieces of a device in the order of addresses, and returns how many there are. */
static size_t each_piece(struct sg_core *core, int ordinal, visit_fn *visit, void *list, size_t room)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    size_t count = 0;
    if (!device || !device->granularity)
        return 0;
    /* All under one lock, so that the pieces are of one moment and tile what is reserved. */
    sg_device_lock(device);
    for (uint32_t i = 0; i < device->regions.count; i++) {
        const struct sg_region *region = device->regions.region[i];
        for (uint32_t id = region->first; id; id = device->regions.extents.extent[id].next) {
            const struct sg_extent *extent = &device->regions.extents.extent[id];
            enum sg_piece_state state = piece_state(extent);
            if (state == SG_PIECE_NONE)
                continue;
            const struct sg_placed placed = {
                .piece =
                    {
                        .address = sg_region_address(region, extent->begin),
                        .bytes = (uint64_t)extent->size << SG_UNIT_SHIFT,
                        .requested = state == SG_PIECE_FREE ? 0 : extent->requested,
                        .stream = state == SG_PIECE_FREE ? NULL : stream_of_locked(device, extent),
                        .state = state,
                        .small = sg_purpose_kind(device->regions.purpose[i]) == SG_KIND_SMALL,
                    },
                .region = region->base,
                .page_bytes = sg_region_page_bytes(region),
                .site = sg_extent_site_locked(&device->regions.extents, id).site,
            };
            if (count < room)
                visit(list, count, &placed);
            count++;
        }
    }
    sg_device_unlock(device);
    return count;
}

static void list_piece(void *list, size_t at, const struct sg_placed *placed)
{
    ((struct sg_piece *)list)[at] = placed->piece;
}

static void list_placed(void *list, size_t at, const struct sg_placed *placed)
{
    ((struct sg_placed *)list)[at] = *placed;
}

size_t sg_core_pieces(struct sg_core *core, int ordinal, struct sg_piece *ret, size_t room)
{
    return each_piece(core, ordinal, list_piece, ret, room);
}

size_t sg_core_placed(struct sg_core *core, int ordinal, struct sg_placed *ret, size_t room)
{
    return each_piece(core, ordinal, list_placed, ret, room);
}

/* True if a page goes on with a mark: it touches the mark, and is pinned and shared alike. */
static bool mark_continues(const struct sg_page_mark *mark, const struct sg_page_mark *page)
{
    return mark->address + mark->bytes == page->address && mark->pinned == page->pinned && mark->shared == page->shared;
}

/* The marks of one region, up to `room` of them. Returns how many there are. */
static size_t mark_region(const struct sg_region *region, struct sg_page_mark *ret, size_t room)
{
    struct sg_page_mark last = {0};
    uint64_t page_bytes = sg_region_page_bytes(region);
    size_t count = 0;
    for (uint32_t i = 0; region->memory.pinned && i < region->pages; i++) {
        if (!region->memory.pin[i] || !sg_page_is_there(region->memory.handle[i]))
            continue;
        const struct sg_page_mark page = {.address = region->base + i * page_bytes,
            .bytes = page_bytes,
            .pinned = region->memory.pin[i] & SG_PIN_ASKED,
            .shared = region->memory.pin[i] >= SG_PIN_ALIASED};
        if (count && mark_continues(&last, &page)) {
            last.bytes += page_bytes;
        } else {
            last = page;
            count++;
        }
        if (count <= room)
            ret[count - 1] = last;
    }
    return count;
}

size_t sg_core_page_marks(struct sg_core *core, int ordinal, struct sg_page_mark *ret, size_t room)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    size_t count = 0;
    if (!device)
        return 0;
    sg_device_lock(device);
    for (uint32_t i = 0; i < device->regions.count; i++)
        count +=
            mark_region(device->regions.region[i], count < room ? ret + count : NULL, count < room ? room - count : 0);
    sg_device_unlock(device);
    return count;
}

uint64_t sg_core_reserved(struct sg_core *core, int ordinal)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return 0;
    sg_device_lock(device);
    uint64_t reserved = device->accounts.usage.reserved.now;
    sg_device_unlock(device);
    return reserved;
}

uint64_t sg_core_counter(struct sg_core *core, int ordinal, enum sg_stat stat)
{
    const struct sg_device *device = sg_device_known(core, ordinal);
    return device ? __atomic_load_n(&device->accounts.counter[stat], __ATOMIC_RELAXED) : 0;
}

void sg_core_count(struct sg_core *core, int ordinal, enum sg_stat stat, uint64_t amount)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (device)
        sg_count(device, stat, amount);
}

void sg_core_levels(struct sg_core *core, int ordinal, struct sg_levels *ret)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    *ret = (struct sg_levels){0};
    if (!device)
        return;
    sg_device_lock(device);
    const struct sg_usage *usage = &device->accounts.usage;
    *ret = (struct sg_levels){
        .requested = usage->requested.now, .allocated = usage->allocated.now, .pending = usage->pending.now,
        .reserved = usage->reserved.now, .pinned = usage->pinned.now, .aliased = usage->aliased.now,
    };
    sg_device_unlock(device);
}
