/* The report of an allocation that failed: how much was short, why, who holds the rest, and what to do next.

   Nouns. The *cause* is the first change that alone would have served the allocation. A *holder* has memory of the
   device: this process by other calls, pools of the driver, or other processes. The *worst page* is the partly used
   page with the least in it.

   How the cause is found: the request is held against the device as it would be without each cause in turn. They are
   tried in this order: fragmentation, queued work, the limit, others. So a user is sent to the nearest change that
   helps.

   For example, of 12 GiB, 5 are held by cudaMallocAsync, 4 by another process, 2 are in blocks, and 3 are asked for.
   The parts add up to 11, so 1 is free. Either holder's going would do, so the larger one is named: "other calls".

   The report of the second request in the case of core/grow.h, 300 MiB where 276 are idle, with bytes as they are
   printed:

      segalloc: out of memory on device 0: short by 24.00 MiB: 300.00 MiB asked for, 276.00 MiB to be had (…)
        cause    too big: with the 23.73 GiB in use that is 24.02 GiB, of 24.00 GiB at most
        help     smaller batches or sequences, or checkpointing, need less
        device   24.00 GiB: 24.00 GiB held by segalloc, 0 B in use by others, 0 B free
        segalloc 24.00 GiB: 23.73 GiB in use, 0 B freed but still in use by queued work, 276.00 MiB idle
        holds    23.44 GiB in 120 blocks, 200.00 MiB on average
        holds    300.00 MiB in 1 block
        next     segalloc rehearse --card 24GiB -- CMD

   Each line has one function below, put_first() to put_next(). */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "inspect/oom_text.h"

#include "core/segments/fixed_segments.h"
#include "core/state/locks.h"
#include "base/live_groups.h"
#include "base/outside.h"
#include "base/size.h"

/* The partly used page with the least in it: what stands in the way of giving it to somebody else. */
struct holder {
    uint64_t used, pages; /* bytes in that page; partly used pages in all */
    CUdeviceptr page;
    uint64_t block;       /* size of one block in it */
    uint64_t page_bytes;
};

/* Notes a page of which `used` units are in use, if it is partly used. */
static void note_page(struct holder *holder, const struct sg_region *region, uint32_t page, uint32_t used,
    uint32_t block)
{
    if (!used || used >= region->page_units)
        return;
    holder->pages++;
    if (used < holder->used)
        *holder = (struct holder){used, holder->pages, sg_region_address(region, page * region->page_units), block,
            sg_region_page_bytes(region)};
}

/* Finds the worst page of a device, and counts the partly used ones. Blocks are walked in address order, so the units
   of a page add up until the next page begins. */
static struct holder find_holder_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct holder holder = {.used = UINT64_MAX};
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
                    note_page(&holder, region, page, used, block);
                    page = ends[e];
                    used = 0;
                }
                uint32_t from = page * region->page_units, to = from + region->page_units,
                         end = extent->begin + extent->size;
                used += (end < to ? end : to) - (extent->begin > from ? extent->begin : from);
                block = extent->size;
            }
        }
        note_page(&holder, region, page, used, block);
    }
    holder.used = holder.used == UINT64_MAX ? 0 : holder.used << SG_UNIT_SHIFT;
    holder.block <<= SG_UNIT_SHIFT;
    return holder;
}

/* The smaller of two: a value bounded by another. */
static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

/* Bytes that may be held of the device if the limit were `limit` and others held `outside`. */
static uint64_t room_of(const struct sg_shortage *shortage, uint64_t limit, uint64_t outside)
{
    return at_most(limit, shortage->total - at_most(outside, shortage->total));
}

/* The holders of a device besides the core, bytes. The parts add up to all that is outside. */
struct holders {
    uint64_t own, pools; /* this process, by other calls: in use, and idle in pools of the driver */
    uint64_t others;     /* other processes */
    uint64_t rest;       /* contexts and libraries: whose is not known */
};

/* Takes up to `bytes` away from what is left, and returns how much that was. */
static uint64_t take_from(uint64_t *left, uint64_t bytes)
{
    uint64_t taken = at_most(bytes, *left);
    *left -= taken;
    return taken;
}

/* Bytes of the processes that are listed. */
static uint64_t around_listed(const struct sg_oom_around *around)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < around->processes; i++)
        bytes += around->process[i].bytes;
    return bytes;
}

/* Divides the memory outside among its holders. Known memory of this process comes first, then the listed processes.
   If more than a tenth of the device is left then, it is counted as other processes' that nobody here can list.
   Contexts and libraries of this one take less. */
static struct holders holders_of(const struct sg_oom_around *around, const struct sg_shortage *shortage)
{
    enum { WORTH_NAMING = 10 };
    struct holders holders = {0};
    uint64_t left = at_most(shortage->outside, shortage->total);
    for (size_t i = 0; i < around->owns; i++)
        *(around->own[i].idle ? &holders.pools : &holders.own) += take_from(&left, around->own[i].bytes);
    holders.others = take_from(&left, around_listed(around));
    bool much = left > shortage->total / WORTH_NAMING;
    if (much && around->complete)
        holders.own += take_from(&left, left);
    else if (much && (!holders.others || around->some_only))
        holders.others += take_from(&left, left);
    holders.rest = left;
    return holders;
}

/* Bytes that the device lacks, by cause: as many would be there without it. */
struct lacks {
    uint64_t limit, pools, own, others;
};

/* The lacks of a device. The limit is one too: the part of the device beyond it can't be had. */
static struct lacks lacks_of(const struct sg_shortage *shortage, const struct holders *holders)
{
    return (struct lacks){
        .limit = shortage->total - at_most(shortage->limit, shortage->total),
        .pools = holders->pools,
        .own = holders->own + holders->pools,
        .others = holders->others,
    };
}

/* The cause that takes most of what is given. */
static enum sg_oom_cause cause_largest(uint64_t limit, uint64_t pools, uint64_t own, uint64_t others)
{
    enum sg_oom_cause cause = SG_OOM_TOO_BIG;
    uint64_t most = 0;
    const struct {
        uint64_t bytes;
        enum sg_oom_cause cause;
    } list[] = {{limit, SG_OOM_LIMIT}, {pools, SG_OOM_POOLS}, {own, SG_OOM_OWN}, {others, SG_OOM_OTHERS}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i].bytes > most) {
            most = list[i].bytes;
            cause = list[i].cause;
        }
    }
    return cause;
}

/* Finds the cause: the first one that needs no other change besides. Where it takes several changes together, it is
   the one that gives most. */
enum sg_oom_cause sg_oom_cause(const struct sg_shortage *shortage, const struct sg_oom_around *around)
{
    const struct holders holders = holders_of(around, shortage);
    const struct lacks lacks = lacks_of(shortage, &holders);
    uint64_t outside = at_most(shortage->outside, shortage->total), most = room_of(shortage, shortage->limit, outside), asked = shortage->asked,
             allocated = shortage->allocated - at_most(around->parked, shortage->allocated), need = allocated + asked;
    /* Each question is whether the device as it would be without one cause has room for the need. The need of a
       defragmented device counts pending memory as in use; from then on it does not. */
    if (asked > UINT64_MAX - shortage->used)
        return SG_OOM_TOO_BIG;
    if (shortage->used + asked <= most)
        return SG_OOM_FRAGMENTED;
    if (need <= most)
        return SG_OOM_QUEUED;
    if (lacks.limit && need <= room_of(shortage, shortage->total, outside))
        return SG_OOM_LIMIT;
    bool pools = need <= room_of(shortage, shortage->limit, outside - lacks.pools),
         own = need <= room_of(shortage, shortage->limit, outside - lacks.own),
         others = need <= room_of(shortage, shortage->limit, outside - lacks.others);
    if (pools || own || others)
        return cause_largest(0, pools ? lacks.pools : 0, own && !pools ? lacks.own : 0, others ? lacks.others : 0);
    if (need <= room_of(shortage, shortage->total, outside - lacks.own - lacks.others))
        return cause_largest(lacks.limit, holders.pools > holders.own ? lacks.own : 0, lacks.own, lacks.others);
    return SG_OOM_TOO_BIG;
}

/* The text under way. Text that finds no room is counted all the same, so the caller knows how much it needs. */
struct text {
    char *buffer;
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void text_put(struct text *text, const char *format, ...)
{
    va_list arguments;
    size_t used = text->length < text->size ? text->length : text->size;
    va_start(arguments, format);
    int length = vsnprintf(text->size > used ? text->buffer + used : NULL, text->size - used, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    text->length += (size_t)length;
}

/* The first line: how much was short, of what. */
static void put_first(struct text *text, int ordinal, const struct sg_shortage *shortage)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT], d[SG_SIZE_TEXT], e[SG_SIZE_TEXT];
    text_put(text, "segalloc: out of memory on device %d: ", ordinal);
    if (shortage->asked)
        text_put(text, "short by %s: %s asked for", sg_size_format(shortage->short_by, a),
            sg_size_format(shortage->asked, b));
    else
        text_put(text, "memory asked for");
    if (shortage->by)
        text_put(text, " %s, refused", sg_outside_refused(shortage->by));
    if (shortage->takes != shortage->asked)
        text_put(text, " in a segment of %s", sg_size_format(shortage->takes, c));
    text_put(text, ", %s to be had (%s idle + %s free)\n", sg_size_format(shortage->idle + shortage->room, c),
        sg_size_format(shortage->idle, d), sg_size_format(shortage->room, e));
}

/* The holders besides segalloc, a row each. `others`: bytes of all other processes. */
static void put_holders(struct text *text, const struct sg_oom_around *around, uint64_t others)
{
    enum { NAMED = 4 };
    char bytes[SG_SIZE_TEXT];
    for (size_t i = 0; i < around->owns; i++) {
        if (around->own[i].bytes)
            text_put(text, "  itself   %s %s\n", sg_size_format(around->own[i].bytes, bytes), around->own[i].how);
    }
    for (size_t i = 0; i < around->processes && i < NAMED; i++) {
        const struct sg_oom_process *process = &around->process[i];
        text_put(text, "  process  %d%s%s%s holds %s\n", process->pid, *process->name ? " (" : "", process->name,
            *process->name ? ")" : "", sg_size_format(process->bytes, bytes));
    }
    if (around->processes > NAMED)
        text_put(text, "  process  and %zu more\n", around->processes - NAMED);
    if (around->processes && others > around_listed(around))
        text_put(text, "  process  others, which this process cannot list, hold %s\n",
            sg_size_format(others - around_listed(around), bytes));
}

/* The source of the limit that is in the way: options, or the program while it ran. */
struct limit_source {
    bool option, fraction; /* `limit`; per_process_memory_fraction */
    uint64_t need;         /* bytes that would do */
};

/* Finds that source by asking what the limit would be without each option. Both may be needed. */
static struct limit_source limit_source(const struct sg_conf *conf, const struct sg_shortage *shortage)
{
    struct sg_conf without = *conf;
    struct limit_source source = {
        .need = shortage->allocated + shortage->asked +
                (shortage->reserved - at_most(shortage->used + shortage->idle, shortage->reserved))};
    if (shortage->limit < sg_conf_limit(conf, shortage->total))
        return source;
    without.per_process_memory_fraction = 1;
    source.option = sg_conf_limit(&without, shortage->total) < source.need;
    without = *conf;
    without.limit_bytes = 0;
    without.limit_fraction = 0;
    source.fraction = sg_conf_limit(&without, shortage->total) < source.need;
    return source;
}

/* A part of the device that is no less than `bytes`, in hundredths. */
static unsigned part_hundredths(uint64_t bytes, uint64_t total)
{
    unsigned whole = (unsigned)(100 * ((double)bytes / (double)total));
    return whole + ((double)whole * (double)total < 100 * (double)bytes);
}

/* The line of help for a limit. */
static void put_limit(struct text *text, const struct sg_conf *conf, const struct sg_shortage *shortage)
{
    const struct limit_source source = limit_source(conf, shortage);
    text_put(text, "  help     ");
    if (source.option || source.fraction)
        text_put(text, "raise %s%s%s\n", source.option ? "`limit`" : "",
            source.option && source.fraction ? " and " : "", source.fraction ? "per_process_memory_fraction" : "");
    else
        text_put(text, "the program has set it: raise what it gives set_per_process_memory_fraction() or "
                       "segalloc_set_limit()\n");
}

/* The second cause, and a limit, where the first alone, which takes `first` bytes, would not be enough. */
static void put_second(struct text *text, uint64_t bytes, const char *who, const char *what, uint64_t need,
    const struct sg_shortage *shortage, uint64_t first)
{
    char size[SG_SIZE_TEXT];
    if (bytes && need > room_of(shortage, shortage->limit, shortage->outside - at_most(first, shortage->outside)))
        text_put(text, ", and %s %s %s", who, sg_size_format(bytes, size), what);
    if (need > room_of(shortage, shortage->limit, 0))
        text_put(text, ", and %s may be held at most", sg_size_format(shortage->limit, size));
}

/* The lines of the cause and of the help for it. Every help names an option, a call or a program. */
static void put_cause(struct text *text, enum sg_oom_cause cause, const struct sg_conf *conf,
    const struct sg_device *device, const struct sg_shortage *shortage, const struct sg_oom_around *around)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT];
    uint64_t need = shortage->allocated + shortage->asked;
    const struct holders holders = holders_of(around, shortage);
    text_put(text, "  cause    ");
    switch (cause) {
    case SG_OOM_TOO_BIG:
        text_put(text,
            "too big: with the %s in use that is %s, of %s at most\n"
            "  help     smaller batches or sequences, or checkpointing, need less\n",
            sg_size_format(shortage->allocated, a), sg_size_format(need, b),
            sg_size_format(room_of(shortage, shortage->limit, shortage->outside), c));
        break;
    case SG_OOM_FRAGMENTED:
        text_put(text, "fragmented: %s are not in use, but not in one piece\n  help     %s\n",
            sg_size_format(room_of(shortage, shortage->limit, shortage->outside) - shortage->used, a),
            device && conf->page_size != SG_AUTO && conf->page_size > device->granularity
                ? "smaller pages waste less: unset page_size_mb"
            : device && device->fixed ? "pages can go where they are needed with expandable_segments:True"
                                      : "free, or allocate first, the small blocks that stay");
        break;
    case SG_OOM_LIMIT:
        text_put(text, "limit: %s may be held of the device's %s, and %s are needed\n",
            sg_size_format(shortage->limit, a), sg_size_format(shortage->total, b), sg_size_format(need, c));
        put_limit(text, conf, shortage);
        break;
    case SG_OOM_OTHERS:
        text_put(text, "other processes hold %s of this device", sg_size_format(holders.others, a));
        put_second(text, holders.own + holders.pools, "this process holds", "of it by other calls than cudaMalloc", need, shortage,
            holders.others);
        text_put(text, "\n  help     stop them, or use another device\n");
        break;
    case SG_OOM_POOLS:
        text_put(text, "idle pools: this process keeps %s idle in pools of the driver",
            sg_size_format(holders.pools, a));
        put_second(text, holders.others, "other processes hold", "of the device", need, shortage, holders.own + holders.pools);
        text_put(text,
            "\n  help     cudaMemPoolTrimTo() gives that back, and so does a lower release threshold of the pool\n");
        break;
    case SG_OOM_OWN:
        text_put(text, "other calls: this process holds %s of this device by other calls than cudaMalloc",
            sg_size_format(holders.own + holders.pools, a));
        put_second(text, holders.others, "other processes hold", "of it", need, shortage, holders.own + holders.pools);
        text_put(text, "\n  help     let go of what they hold before this allocation, or have them take less\n");
        break;
    case SG_OOM_QUEUED:
        text_put(text, "work still queued: it uses %s that are freed already\n  help     %s\n",
            sg_size_format(shortage->pending + around->parked, a),
            around->parked                           ? "allocate before a graph is captured, or free before it"
            : shortage->given_up                     ? "a kernel that never ends? else raise wait_limit"
            : conf->free_sync == SG_FREE_SYNC_STRICT ? "synchronize before this allocation"
                                                     : "free_sync:strict waits for it");
        break;
    }
}

/* The use of the device's memory, in lines whose parts add up to all of it. */
static void put_memory(struct text *text, const struct sg_shortage *shortage, const struct sg_oom_around *around,
    const struct holder *holder, bool worst)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT], d[SG_SIZE_TEXT], e[SG_SIZE_TEXT], f[SG_SIZE_TEXT];
    uint64_t known = shortage->used + shortage->idle, held = shortage->reserved;
    struct sg_shortage fits = *shortage;
    fits.outside = at_most(shortage->total - at_most(held, shortage->total), shortage->outside);
    const struct holders holders = holders_of(around, &fits);
    text_put(text, "  device   %s: %s held by segalloc", sg_size_format(shortage->total, a), sg_size_format(held, b));
    if (holders.own + holders.pools)
        text_put(text, ", %s by this process otherwise", sg_size_format(holders.own + holders.pools, c));
    text_put(text, ", %s in use by others, %s free\n", sg_size_format(holders.others + holders.rest, c),
        sg_size_format(shortage->total - at_most(held + fits.outside, shortage->total), d));
    text_put(text, "  segalloc %s: %s in use, %s freed but still in use by queued work, %s idle",
        sg_size_format(held, a), sg_size_format(shortage->allocated, b), sg_size_format(shortage->pending, c),
        sg_size_format(shortage->idle, d));
    if (holder->pages)
        text_put(text, ", %s idle in %llu partly used page%s", sg_size_format(held > known ? held - known : 0, e),
            (unsigned long long)holder->pages, sg_plural(holder->pages));
    else if (held > known)
        text_put(text, ", %s idle in partly used segments", sg_size_format(held - known, e));
    text_put(text, "\n");
    if (holder->pages && worst)
        text_put(text, "  worst    %s in use keep a page of %s (at 0x%llx, a block of %s)\n",
            sg_size_format(holder->used, e), sg_size_format(holder->page_bytes, f), (unsigned long long)holder->page,
            sg_size_format(holder->block, a));
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

/* The program's command for lines to copy; CMD where it is unknown. */
static const char *command_of(const struct sg_oom_around *around)
{
    return around->command && *around->command ? around->command : "CMD";
}

/* The line that says how to find the code that asked for the live blocks: the next command does, or one of its own. */
static void put_lines(struct text *text, enum sg_oom_cause cause, const struct sg_oom_around *around)
{
    text_put(text, "  lines    ");
    if (cause == SG_OOM_TOO_BIG)
        text_put(text, "the next command names the code that asked for these, and what the whole run needs\n");
    else if (cause == SG_OOM_FRAGMENTED)
        text_put(text, "the next command names the code that asked for these\n");
    else
        text_put(text, "segalloc run --sites -- %s\n", command_of(around));
}

/* The largest groups of live blocks, a line each. */
static void put_live(struct text *text, const struct sg_live_row *row, uint32_t rows,
    const struct sg_oom_around *around, enum sg_oom_cause cause)
{
    char bytes[SG_SIZE_TEXT], mean[SG_SIZE_TEXT], site[160];
    bool sites = false;
    for (uint32_t i = 0; i < rows; i++) {
        text_put(text, "  holds    %s in %llu block%s", sg_size_format(row[i].bytes, bytes),
            (unsigned long long)row[i].blocks, sg_plural(row[i].blocks));
        if (row[i].blocks > 1)
            text_put(text, ", %s on average", sg_size_format(row[i].bytes / row[i].blocks, mean));
        if (row[i].key.site && around->site && around->site(row[i].key.site, site, sizeof site)) {
            text_put(text, ", asked for at %s", site);
            sites = true;
        }
        text_put(text, "\n");
    }
    if (rows && !sites && around->site) /* a rehearsal notes them by itself */
        put_lines(text, cause, around);
}

/* A size as it is given to a tool, rounded up to whole MiB, or GiB where it is whole ones. */
static const char *size_argument(uint64_t bytes, char text[SG_SIZE_TEXT])
{
    bool whole = bytes % SG_GIB == 0;
    uint64_t unit = whole ? SG_GIB : SG_MIB;
    snprintf(text, SG_SIZE_TEXT, "%llu%s", (unsigned long long)((bytes + unit - 1) / unit), whole ? "GiB" : "MiB");
    return text;
}

/* The command that runs the program with a limit that would do. */
static void put_next_limit(struct text *text, const struct sg_conf *conf, const struct sg_shortage *shortage,
    const char *command)
{
    const struct limit_source source = limit_source(conf, shortage);
    unsigned part = part_hundredths(source.need, shortage->total);
    char size[SG_SIZE_TEXT];
    if (!source.option && !source.fraction) {
        uint64_t whole = (source.need + SG_MIB - 1) / SG_MIB * SG_MIB;
        text_put(text,
            "in the program: torch.cuda.set_per_process_memory_fraction(%u.%02u), or segalloc.set_limit(%llu)\n",
            part / 100, part % 100, (unsigned long long)whole);
        return;
    }
    text_put(text, "segalloc run --conf ");
    if (source.option)
        text_put(text, "limit:%s", size_argument(source.need, size));
    if (source.fraction)
        text_put(text, "%sper_process_memory_fraction:%u.%02u", source.option ? "," : "", part / 100, part % 100);
    text_put(text, " -- %s\n", command);
}

static void put_next(struct text *text, enum sg_oom_cause cause, const struct sg_conf *conf,
    const struct sg_shortage *shortage, const struct sg_oom_around *around)
{
    const char *command = command_of(around);
    char size[SG_SIZE_TEXT];
    text_put(text, "  next     ");
    switch (cause) {
    case SG_OOM_TOO_BIG:
        text_put(text, "segalloc rehearse --card %s -- %s\n", size_argument(shortage->total, size), command);
        break;
    case SG_OOM_FRAGMENTED:
        text_put(text, "segalloc run --sites -o run.trace -- %s\n  next     segalloc report run.trace: which blocks keep which pages\n",
            command);
        break;
    case SG_OOM_LIMIT:
        put_next_limit(text, conf, shortage, command);
        break;
    case SG_OOM_POOLS:
    case SG_OOM_OWN:
        text_put(text, "segalloc rehearse --card %s -- %s\n", size_argument(shortage->total, size), command);
        break;
    case SG_OOM_OTHERS:
        if (!around->processes) {
            text_put(text, "nvidia-smi\n");
            break;
        }
        text_put(text, "ps -fp ");
        for (size_t i = 0; i < around->processes; i++)
            text_put(text, "%s%d", i ? "," : "", around->process[i].pid);
        text_put(text, "\n");
        break;
    case SG_OOM_QUEUED:
        if (around->parked)
            text_put(text, "segalloc run -o run.trace -- %s\n", command);
        else if (shortage->given_up || conf->free_sync == SG_FREE_SYNC_STRICT)
            text_put(text, "segalloc run --conf wait_limit:%.0f -- %s\n", 10 * conf->wait_limit + 10, command);
        else
            text_put(text, "segalloc run --conf free_sync:strict -- %s\n", command);
        break;
    }
}

/* The failure with the memory that the device has left now, to the byte. The core itself asks in steps of 1/256 of
   the device, and not at all for a request that no card could serve. */
static struct sg_shortage as_measured(const struct sg_shortage *shortage, const struct sg_oom_around *around)
{
    struct sg_shortage measured = *shortage;
    if (!around->used)
        return measured;
    uint64_t held = shortage->reserved, outside = around->used > held ? around->used - held : 0;
    measured.outside = at_most(outside, shortage->total);
    uint64_t left = shortage->total - at_most(held + measured.outside, shortage->total),
             allowed = shortage->limit - at_most(held, shortage->limit);
    measured.room = at_most(allowed, left);
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

size_t sg_core_oom_text(struct sg_core *core, int ordinal, const struct sg_oom_around *around, char *buffer, size_t size)
{
    static const struct sg_oom_around nothing = {0};
    enum { GROUPS = 4096, LISTED = 5 };
    struct sg_device *device = sg_device_known(core, ordinal);
    struct text text = {buffer, size, 0};
    struct sg_live live = {0};
    struct sg_live_row row[LISTED];
    if (size)
        *buffer = '\0';
    around = around ? around : &nothing;
    struct sg_shortage shortage;
    struct holder holder = {0};
    /* All facts are read under one lock. The text is made without it, because it asks for names of places, which may
       take long. */
    bool grouped = sg_live_init(&live, GROUPS);
    if (device) {
        sg_device_lock(device);
        shortage = as_measured(&device->room.shortage, around);
        holder = find_holder_locked(device);
        if (grouped)
            collect_live_locked(device, &live);
        sg_device_unlock(device);
    } else if (!shortage_of_unready(core, ordinal, around, &shortage)) {
        sg_live_fini(&live);
        return 0;
    }
    uint32_t rows = grouped ? sg_live_rows(&live, false, NULL, row, LISTED) : 0;
    sg_live_fini(&live);
    enum sg_oom_cause cause = sg_oom_cause(&shortage, around);
    put_first(&text, ordinal, &shortage);
    put_cause(&text, cause, &core->conf, device, &shortage, around);
    put_holders(&text, around, holders_of(around, &shortage).others);
    put_memory(&text, &shortage, around, &holder, cause == SG_OOM_FRAGMENTED);
    put_live(&text, row, rows < LISTED ? rows : LISTED, around, cause);
    put_next(&text, cause, &core->conf, &shortage, around);
    return text.length;
}
