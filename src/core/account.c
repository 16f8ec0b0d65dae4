/* What the core tells about itself: the statistics table, and the text for running out. */
#include <stdio.h>

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
    ret->value[SG_STAT_largest_free_bytes] = largest_free(device);
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

/* Under the lock. What would help, by what is set already: never a setting that is on. */
static const char *advice(const struct sg_device *device, const struct sg_stats *stats)
{
    const struct sg_conf *conf = &device->core->conf;
    uint64_t live = stats->value[SG_STAT_requested_bytes], stranded = stats->value[SG_STAT_stranded_bytes];
    if (device->capacity_bytes < device->total_bytes && live <= device->total_bytes &&
        device->oom_request <= device->total_bytes - live)
        return "the limit is what stops it: raise `limit` or per_process_memory_fraction";
    if (device->outside_bytes > device->total_bytes / 10)
        return "other users of the device hold more than a tenth of it: stop them or move";
    if (stats->value[SG_STAT_waits_given_up])
        return "work that did not end within wait_limit holds freed memory: a kernel that never ends? else raise wait_limit";
    if (stats->value[SG_STAT_pending_bytes] > stranded && conf->free_sync != SG_FREE_SYNC_STRICT)
        return "memory that was freed is still in use by queued work: free_sync:strict waits for it";
    if (stranded > device->total_bytes / 50 && conf->page_size != SG_AUTO && conf->page_size > device->granularity)
        return "partly used pages hold the rest: unset page_size_mb";
    return "the program needs more than there is: smaller batches or sequences, or checkpointing";
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
        g[SG_SIZE_TEXT], h[SG_SIZE_TEXT], k[SG_SIZE_TEXT], l[SG_SIZE_TEXT];
    sg_lock(&device->lock);
    collect(device, &stats);
    struct holder holder = find_holder(device);
    uint64_t outside = device->outside_bytes, idle = sg_device_idle(device), asked = device->oom_request,
             capacity = device->capacity_bytes;
    const char *help = advice(device, &stats);
    sg_unlock(&device->lock);
    uint64_t held = stats.value[SG_STAT_reserved_bytes], room = capacity > held ? capacity - held : 0;
    uint64_t others = device->total_bytes > held + outside ? device->total_bytes - held - outside : 0;
    room = room < others ? room : others;
    char pinned[160] = "";
    if (holder.pages)
        snprintf(pinned, sizeof pinned,
            "  pinned by %llu bytes in the emptiest of those pages (at 0x%llx, a block of %s)\n",
            (unsigned long long)holder.used, (unsigned long long)holder.page, sg_size_format(holder.block, a));
    return (size_t)snprintf(buffer, size,
        "segalloc: out of memory on device %d: %s asked for\n"
        "  device    %s in all, %s that segalloc may hold, about %s not held by anybody\n"
        "  program   %s requested and alive, %s allocated, %s freed but still in use by queued work\n"
        "  segalloc  %s reserved, of that %s stranded in %llu partly used pages\n"
        "  largest   %s could be had: idle pages and what the device has left\n"
        "%s"
        "  advice    %s\n",
        ordinal, sg_size_format(asked, a), sg_size_format(device->total_bytes, b), sg_size_format(capacity, c),
        sg_size_format(others, d), sg_size_format(stats.value[SG_STAT_requested_bytes], e),
        sg_size_format(stats.value[SG_STAT_allocated_bytes], f), sg_size_format(stats.value[SG_STAT_pending_bytes], g),
        sg_size_format(held, h), sg_size_format(stats.value[SG_STAT_stranded_bytes], k),
        (unsigned long long)holder.pages, sg_size_format(idle + room, l), pinned, help);
}
