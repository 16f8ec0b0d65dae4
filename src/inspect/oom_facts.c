/* Walks over extents in the order of addresses. */
#include "inspect/oom_facts.h"

#include "core/segments/fixed_segments.h"
#include "core/state/locks.h"

/* Notes a page of which `used` units are in use, if it is partly used. */
static void note_page(struct sg_oom_page *worst, const struct sg_region *region, uint32_t page, uint32_t used,
    uint32_t block)
{
    if (!used || used >= region->page_units)
        return;
    worst->pages++;
    if (used < worst->used)
        *worst = (struct sg_oom_page){used, worst->pages, sg_region_address(region, page * region->page_units), block,
            sg_region_page_bytes(region)};
}

/* Finds the worst page of a device, and counts the partly used ones. Blocks are walked in address order, so the units
   of a page add up until the next page begins. */
static struct sg_oom_page find_worst_page_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_oom_page worst = {.used = UINT64_MAX};
    for (uint32_t i = 0; i < device->regions.count; i++) {
        const struct sg_region *region = device->regions.region[i];
        uint32_t page = UINT32_MAX, used = 0, block = 0;
        for (uint32_t id = region->first; id; id = device->regions.extents.extent[id].next) {
            const struct sg_extent *extent = &device->regions.extents.extent[id];
            if (extent->state != SG_EXTENT_BLOCK && extent->state != SG_EXTENT_PENDING)
                continue;
            /* Only the first and last page of a block can be shared. */
            uint32_t ends[2] = {extent->begin / region->page_units,
                (extent->begin + extent->size - 1) / region->page_units};
            for (int e = 0; e < 2; e++) {
                if (e == 1 && ends[1] == ends[0])
                    continue;
                if (ends[e] != page) {
                    note_page(&worst, region, page, used, block);
                    page = ends[e];
                    used = 0;
                }
                uint32_t from = page * region->page_units, to = from + region->page_units,
                         end = extent->begin + extent->size;
                used += (end < to ? end : to) - (extent->begin > from ? extent->begin : from);
                block = extent->size;
            }
        }
        note_page(&worst, region, page, used, block);
    }
    worst.used = worst.used == UINT64_MAX ? 0 : worst.used << SG_UNIT_SHIFT;
    worst.block <<= SG_UNIT_SHIFT;
    return worst;
}

/* Adds a live block to its group. Blocks of one place in the program belong together, or where that is not known,
   blocks of one size class. */
static void add_block_locked(struct sg_live *live, const struct sg_device *device, const struct sg_extent *extent)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_live_key key = {
        .site =
            sg_extent_site_locked(&device->regions.extents, (uint32_t)(extent - device->regions.extents.extent)).site};
    if (!key.site)
        key.size_class = sg_live_class(extent->requested);
    (void)sg_live_add(live, &key, extent->requested);
}

/* Groups all live blocks of a device, in regions and in segments. */
static void collect_live_locked(const struct sg_device *device, struct sg_live *live) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    for (uint32_t i = 0; i < device->regions.count; i++) {
        for (uint32_t id = device->regions.region[i]->first; id; id = device->regions.extents.extent[id].next) {
            if (device->regions.extents.extent[id].state == SG_EXTENT_BLOCK)
                add_block_locked(live, device, &device->regions.extents.extent[id]);
        }
    }
    const struct sg_idmap *fixed = device->fixed ? &device->fixed->live : NULL;
    for (size_t i = 0; fixed && i <= fixed->mask; i++) {
        if (fixed->entry[i].value)
            add_block_locked(live, device, &device->regions.extents.extent[fixed->entry[i].value]);
    }
}

/* The failure with the memory that the device has left now, to the byte. The core itself asks in steps of 1/256 of
   the device, and not at all for a request that no card could serve. */
static struct sg_shortage as_measured(const struct sg_shortage *shortage, const struct sg_oom_around *around)
{
    struct sg_shortage measured = *shortage;
    if (!around->used && !around->quota)
        return measured;
    uint64_t held = shortage->reserved, outside = around->used > held ? around->used - held : 0;
    uint64_t total = sg_oom_total(shortage, around);
    measured.outside = sg_oom_at_most(outside, total);
    uint64_t left = total - sg_oom_at_most(held + measured.outside, total),
             allowed = shortage->limit - sg_oom_at_most(held, shortage->limit);
    measured.room = sg_oom_at_most(allowed, left);
    uint64_t had = shortage->idle + measured.room;
    if (shortage->takes > had)
        measured.short_by = shortage->takes - had;
    return measured;
}

/* The shortage of a device that has served nothing of ours. False: nothing was refused there. */
static bool shortage_of_unready(struct sg_core *core, int ordinal, const struct sg_oom_around *around,
    struct sg_shortage *ret)
{
    if ((unsigned)ordinal >= SG_DEVICES_MAX)
        return false;
    sg_setup_lock(core);
    const struct sg_unready unready = core->unready[ordinal];
    sg_setup_unlock(core);
    *ret = as_measured(&unready.shortage, around);
    return unready.refused > 0;
}

bool sg_oom_facts(struct sg_core *core, int ordinal, const struct sg_oom_around *around, struct sg_oom_facts *ret)
{
    enum { GROUPS = 4096 };
    struct sg_device *device = sg_device_known(core, ordinal);
    struct sg_live live = {0};
    *ret = (struct sg_oom_facts){.device = device};
    if (!device)
        return shortage_of_unready(core, ordinal, around, &ret->shortage);
    bool grouped = sg_live_init(&live, GROUPS);
    sg_device_lock(device);
    ret->shortage = as_measured(&device->room.shortage, around);
    ret->worst = find_worst_page_locked(device);
    if (grouped)
        collect_live_locked(device, &live);
    sg_device_unlock(device);
    uint32_t rows = grouped ? sg_live_rows(&live, false, NULL, ret->row, SG_OOM_ROWS) : 0;
    ret->rows = rows < SG_OOM_ROWS ? rows : SG_OOM_ROWS;
    sg_live_fini(&live);
    return true;
}
