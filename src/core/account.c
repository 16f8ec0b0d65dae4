/* What the core tells about itself: the statistics table, and the text for running out. */
#include <stdio.h>

#include "classic.h"
#include "device.h"
#include "size.h"

static void set_gauge(struct sg_stats *stats, enum sg_stat stat, struct sg_gauge gauge)
{
    stats->value[stat] = gauge.now;
    stats->peak[stat] = gauge.peak;
}

static uint64_t largest_free(const struct sg_device *device)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < device->region_count; i++) {
        uint64_t units = sg_region_largest(device->region[i]);
        largest = units > largest ? units : largest;
    }
    return largest << SG_UNIT_SHIFT;
}

static void collect(struct sg_device *device, struct sg_stats *ret)
{
    const struct sg_usage *usage = &device->usage;
    *ret = (struct sg_stats){0};
    sg_usage_derive(device);
    for (int i = 0; i < SG_STAT_COUNT; i++)
        ret->value[i] = __atomic_load_n(&device->counter[i], __ATOMIC_RELAXED);
    set_gauge(ret, SG_STAT_requested_bytes, usage->requested);
    set_gauge(ret, SG_STAT_allocated_bytes, usage->allocated);
    set_gauge(ret, SG_STAT_pending_bytes, usage->pending);
    set_gauge(ret, SG_STAT_active_bytes, usage->active);
    set_gauge(ret, SG_STAT_reserved_bytes, usage->reserved);
    set_gauge(ret, SG_STAT_inactive_split_bytes, usage->inactive_split);
    set_gauge(ret, SG_STAT_stranded_bytes, usage->stranded);
    set_gauge(ret, SG_STAT_small_allocated_bytes, usage->small_allocated);
    set_gauge(ret, SG_STAT_small_reserved_bytes, usage->small_reserved);
    set_gauge(ret, SG_STAT_allocations, usage->allocations);
    set_gauge(ret, SG_STAT_pages, usage->pages);
    set_gauge(ret, SG_STAT_segments, usage->segments);
    set_gauge(ret, SG_STAT_pinned_bytes, usage->pinned);
    set_gauge(ret, SG_STAT_aliased_bytes, usage->aliased);
    ret->value[SG_STAT_largest_free_bytes] = ret->peak[SG_STAT_largest_free_bytes] = largest_free(device);
    ret->value[SG_STAT_allocs] = usage->allocs;
    ret->value[SG_STAT_frees] = usage->frees;
    ret->value[SG_STAT_allocated_total_bytes] = usage->allocated_total;
    ret->value[SG_STAT_freed_total_bytes] = usage->freed_total;
    ret->value[SG_STAT_strict_frees] = usage->strict_frees;
    ret->value[SG_STAT_strict_wait_ns] = usage->strict_wait_ns;
    ret->value[SG_STAT_calls_sync] += usage->strict_frees;
}

static bool snapshot(struct sg_core *core, int ordinal, bool recent, struct sg_stats *ret)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return false;
    sg_lock(&device->lock);
    collect(device, ret);
    for (int i = 0; !recent && i < SG_STAT_COUNT; i++) {
        if (ret->peak[i] < device->peak_before[i])
            ret->peak[i] = device->peak_before[i];
    }
    sg_unlock(&device->lock);
    return true;
}

bool sg_core_stats(struct sg_core *core, int ordinal, struct sg_stats *ret)
{
    return snapshot(core, ordinal, /* recent */ false, ret);
}

bool sg_core_stats_recent(struct sg_core *core, int ordinal, struct sg_stats *ret)
{
    return snapshot(core, ordinal, /* recent */ true, ret);
}

/* The partly used page with the least in it: what stands in the way of giving it to somebody else. */
struct holder {
    uint64_t used, pages; /* bytes in that page; partly used pages in all */
    CUdeviceptr page;
    uint64_t block;       /* size of one block in it */
};

static struct holder find_holder(const struct sg_device *device)
{
    struct holder holder = {.used = UINT64_MAX};
    for (uint32_t i = 0; i < device->region_count; i++) {
        const struct sg_region *region = device->region[i];
        uint32_t page = UINT32_MAX, used = 0, block = 0;
        for (uint32_t id = region->first; id; id = device->nodes.node[id].next) {
            const struct sg_node *node = &device->nodes.node[id];
            if (node->state != SG_NODE_BLOCK && node->state != SG_NODE_PENDING)
                continue;
            /* Only the first and last page of a block can be shared. */
            uint32_t ends[2] = {node->begin / region->page_units, (node->begin + node->size - 1) / region->page_units};
            for (int e = 0; e < 2; e++) {
                if (e == 1 && ends[1] == ends[0])
                    continue;
                if (ends[e] != page) {
                    if (used && used < region->page_units) {
                        holder.pages++;
                        if (used < holder.used)
                            holder = (struct holder){used, holder.pages,
                                sg_region_address(region, page * region->page_units), block};
                    }
                    page = ends[e];
                    used = 0;
                }
                uint32_t from = page * region->page_units, to = from + region->page_units,
                         end = node->begin + node->size;
                used += (end < to ? end : to) - (node->begin > from ? node->begin : from);
                block = node->size;
            }
        }
        if (used && used < region->page_units) {
            holder.pages++;
            if (used < holder.used)
                holder =
                    (struct holder){used, holder.pages, sg_region_address(region, page * region->page_units), block};
        }
    }
    holder.used = holder.used == UINT64_MAX ? 0 : holder.used << SG_UNIT_SHIFT;
    holder.block <<= SG_UNIT_SHIFT;
    return holder;
}

void sg_device_note_shortage(struct sg_device *device, uint64_t bytes)
{
    uint64_t held = device->usage.reserved.now, outside = device->outside_bytes;
    uint64_t allowed = device->capacity_bytes > held ? device->capacity_bytes - held : 0;
    uint64_t left = device->total_bytes > held + outside ? device->total_bytes - held - outside : 0;
    struct sg_shortage shortage = {
        .asked = bytes,
        .live = device->usage.requested.now,
        .used = device->usage.active.now,
        .idle = device->classic ? sg_classic_idle(device) : sg_device_idle(device),
        .room = allowed < left ? allowed : left,
    };
    uint64_t had = shortage.idle + shortage.room;
    shortage.short_by = bytes > had ? bytes - had : device->granularity ? device->granularity : SG_UNIT;
    device->shortage = shortage;
}

bool sg_core_shortage(struct sg_core *core, int ordinal, struct sg_shortage *ret)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return false;
    sg_lock(&device->lock);
    *ret = device->shortage;
    sg_unlock(&device->lock);
    return ret->asked > 0;
}

/* Under the lock. Why it failed and what would help, by what is set already: never a setting that is on. */
static const char *cause(const struct sg_device *device, const struct sg_stats *stats)
{
    const struct sg_conf *conf = &device->core->conf;
    const struct sg_shortage *shortage = &device->shortage;
    uint64_t pending = stats->value[SG_STAT_pending_bytes], used = shortage->used,
             pieces = stats->value[SG_STAT_inactive_split_bytes], others = device->total_bytes - device->outside_bytes,
             most = device->capacity_bytes < others ? device->capacity_bytes : others;
    if (device->capacity_bytes < device->total_bytes && shortage->live <= device->total_bytes &&
        shortage->asked <= device->total_bytes - shortage->live)
        return "limit: the device has more: raise `limit` or per_process_memory_fraction";
    if (device->outside_bytes > device->total_bytes / 10)
        return "other users of the device hold more than a tenth of it: stop them or use another GPU";
    if (stats->value[SG_STAT_waits_given_up])
        return "work that did not end within wait_limit holds freed memory: a kernel that never ends? else raise wait_limit";
    if (pending > pieces + shortage->idle && conf->free_sync != SG_FREE_SYNC_STRICT)
        return "memory that was freed is still in use by queued work: free_sync:strict waits for it";
    if (used > most || shortage->asked > most - used)
        return "too big: the program needs more than there is: smaller batches or sequences, or checkpointing";
    if (conf->page_size != SG_AUTO && conf->page_size > device->granularity)
        return "fragmented: it would fit if idle memory were in one piece: unset page_size_mb";
    return "fragmented: it would fit if idle memory were in one piece: free, or allocate first, the small blocks that stay";
}

/* Under the lock; "" where no page is partly used. */
static void describe_pieces(const struct sg_device *device, uint64_t pieces, char *text, size_t size)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT];
    struct holder holder = find_holder(device);
    *text = '\0';
    if (holder.pages)
        snprintf(text, size, ", %s idle in %llu partly used page%s\n  worst     %s in use keep a whole page (at 0x%llx, "
            "a block of %s)", sg_size_format(pieces, a), (unsigned long long)holder.pages, holder.pages == 1 ? "" : "s",
            sg_size_format(holder.used, b), (unsigned long long)holder.page, sg_size_format(holder.block, c));
}

size_t sg_core_oom_text(struct sg_core *core, int ordinal, char *buffer, size_t size)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device) {
        if (size)
            *buffer = '\0';
        return 0;
    }
    struct sg_stats stats;
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT], d[SG_SIZE_TEXT], e[SG_SIZE_TEXT], f[SG_SIZE_TEXT],
        g[SG_SIZE_TEXT], h[SG_SIZE_TEXT], k[SG_SIZE_TEXT], l[SG_SIZE_TEXT], m[SG_SIZE_TEXT], n[SG_SIZE_TEXT],
        pieces[240];
    sg_lock(&device->lock);
    collect(device, &stats);
    const struct sg_shortage shortage = device->shortage;
    uint64_t total = device->total_bytes, capacity = device->capacity_bytes, outside = device->outside_bytes;
    describe_pieces(device, stats.value[SG_STAT_inactive_split_bytes], pieces, sizeof pieces);
    const char *why = cause(device, &stats);
    sg_unlock(&device->lock);
    return (size_t)snprintf(buffer, size,
        "segalloc: out of memory on device %d: short by %s: %s asked for, %s to be had (%s idle, %s free)\n"
        "  device    %s in all, %s that segalloc may hold, %s in use by others\n"
        "  program   %s requested and alive, %s freed but still in use by queued work\n"
        "  segalloc  %s reserved: %s allocated, %s idle in whole pages%s\n"
        "  cause     %s\n"
        "  next      segalloc run -o TRACE -- CMD, then segalloc report TRACE: what holds the memory\n",
        ordinal, sg_size_format(shortage.short_by, a), sg_size_format(shortage.asked, b),
        sg_size_format(shortage.idle + shortage.room, c), sg_size_format(shortage.idle, d),
        sg_size_format(shortage.room, e), sg_size_format(total, f), sg_size_format(capacity, g),
        sg_size_format(outside, h), sg_size_format(shortage.live, k),
        sg_size_format(stats.value[SG_STAT_pending_bytes], l), sg_size_format(stats.value[SG_STAT_reserved_bytes], m),
        sg_size_format(stats.value[SG_STAT_allocated_bytes], n),
        sg_size_format(shortage.idle, (char[SG_SIZE_TEXT]){0}), pieces, why);
}
