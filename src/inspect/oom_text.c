/* The report of an allocation that failed: how much was short, why, who holds the rest, and what to do next.

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

   Where one change is not enough, the line of the cause tells each, and each has its line of help. For example, of 1000 MiB 450 are
   held by cudaMallocAsync, the limit is 500, and 600 are asked for beside 100 in use:

        cause    limit: 500.00 MiB may be held of the device's 1000.00 MiB, and 700.00 MiB are needed; without the limit
                 150.00 MiB are short, and this process holds 450.00 MiB of the device by other calls than cudaMalloc
        help     raise `limit`
        help     let go of what other calls hold before this allocation, or have them take less

   Each line has one function below, put_first() to put_next(). */
#include <assert.h>
#include <stdio.h>

#include "inspect/oom_text.h"

#include "base/outside.h"
#include "base/size.h"
#include "base/text.h"
#include "core/state/locks.h"
#include "core/tuning.h"
#include "inspect/oom_facts.h"

/* The first line: how much was short, of what. */
static void put_first(struct sg_text *text, int ordinal, const struct sg_shortage *shortage)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT], d[SG_SIZE_TEXT], e[SG_SIZE_TEXT];
    sg_text_add(text, "segalloc: out of memory on device %d: ", ordinal);
    if (shortage->asked)
        sg_text_add(text, "short by %s: %s asked for", sg_size_format(shortage->short_by, a),
            sg_size_format(shortage->asked, b));
    else
        sg_text_add(text, "memory asked for");
    if (shortage->by)
        sg_text_add(text, " %s, refused", sg_outside_refused(shortage->by));
    if (shortage->takes != shortage->asked)
        sg_text_add(text, " in a segment of %s", sg_size_format(shortage->takes, c));
    sg_text_add(text, ", %s to be had (%s idle + %s free)\n", sg_size_format(shortage->idle + shortage->room, c),
        sg_size_format(shortage->idle, d), sg_size_format(shortage->room, e));
}

/* The holders besides segalloc, a row each. `others`: bytes of all other processes. */
static void put_holders(struct sg_text *text, const struct sg_oom_around *around, uint64_t others)
{
    enum { NAMED = 4 };
    char bytes[SG_SIZE_TEXT];
    for (size_t i = 0; i < around->owns; i++) {
        if (around->own[i].bytes)
            sg_text_add(text, "  itself   %s %s\n", sg_size_format(around->own[i].bytes, bytes), around->own[i].how);
    }
    for (size_t i = 0; i < around->processes && i < NAMED; i++) {
        const struct sg_oom_process *process = &around->process[i];
        sg_text_add(text, "  process  %d%s%s%s holds %s\n", process->pid, *process->name ? " (" : "", process->name,
            *process->name ? ")" : "", sg_size_format(process->bytes, bytes));
    }
    if (around->processes > NAMED)
        sg_text_add(text, "  process  and %zu more\n", around->processes - NAMED);
    if (around->processes && others > sg_oom_listed(around))
        sg_text_add(text, "  process  others, which this process cannot list, hold %s\n",
            sg_size_format(others - sg_oom_listed(around), bytes));
}

/* The host's memory, where the device has no other. The first line of the report counts what is kept back as in use.
   So this one says how much that is, and by which option.

   For example, of 1.00 GiB 48.00 MiB are available, and 51.20 are kept back. Nothing is to be had then. */
static void put_host(struct sg_text *text, const struct sg_oom_host *host)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT];
    if (!host)
        return;
    sg_text_add(text,
        "  host     the device's memory is the host's: %s, of which %s are available and %s kept back (host_reserve)",
        sg_size_format(host->total, a), sg_size_format(host->available, b), sg_size_format(host->kept, c));
    if (host->group_limit != UINT64_MAX)
        sg_text_add(text, "; its control group may have %s and has %s", sg_size_format(host->group_limit, a),
            sg_size_format(host->group_used, b));
    sg_text_add(text, "\n");
}

/* A part of the device that is no less than `bytes`, in hundredths. */
static unsigned part_hundredths(uint64_t bytes, uint64_t total)
{
    unsigned whole = (unsigned)(100 * ((double)bytes / (double)total));
    return whole + ((double)whole * (double)total < 100 * (double)bytes);
}

/* The help for a limit. */
static void put_limit(struct sg_text *text, const struct sg_conf *conf, const struct sg_shortage *shortage)
{
    const struct sg_oom_limit source = sg_oom_limit(conf, shortage);
    if (source.option || source.fraction)
        sg_text_add(text, "raise %s%s%s\n", source.option ? "`limit`" : "",
            source.option && source.fraction ? " and " : "", source.fraction ? "per_process_memory_fraction" : "");
    else
        sg_text_add(text, "the program has set it: raise what it gives set_per_process_memory_fraction() or "
                          "segalloc_set_limit()\n");
}

/* The facts that a cause and its help are made of. */
struct cause_facts {
    enum sg_oom_cause cause;
    unsigned also; /* further causes, a bit each */
    const struct sg_conf *conf;
    const struct sg_device *device;
    const struct sg_shortage *shortage;
    const struct sg_oom_around *around;
};

static bool is_also(const struct cause_facts *facts, enum sg_oom_cause cause)
{
    return facts->also >> cause & 1;
}

/* True if all that this process holds by other calls is the library's own, for guarded blocks: the program has called nothing. */
static bool is_guards_alone(const struct sg_oom_holders *holders)
{
    return holders->guards && holders->guards == holders->own + holders->pools;
}

/* The memory that this process holds by other calls. `whole`: the device, in the words of the sentence. */
static void put_own(struct sg_text *text, const struct sg_oom_holders *holders, const char *whole)
{
    char size[SG_SIZE_TEXT];
    sg_text_add(text, "this process holds %s of %s %s", sg_size_format(holders->own + holders->pools, size), whole,
        is_guards_alone(holders) ? "for guarded blocks (check:guard)" : "by other calls than cudaMalloc");
    if (holders->guards && !is_guards_alone(holders))
        sg_text_add(text, ", %s of that for guarded blocks (check:guard)", sg_size_format(holders->guards, size));
}

/* The further causes, for the end of the first one's line. */
static void put_also(struct sg_text *text, const struct cause_facts *facts)
{
    const struct sg_oom_holders holders = sg_oom_holders(facts->around, facts->shortage);
    bool begins = facts->cause == SG_OOM_LIMIT || facts->cause == SG_OOM_QUOTA || facts->cause == SG_OOM_GRAPHS;
    const char *whole = begins ? "the device" : "it";
    char size[SG_SIZE_TEXT];
    if (facts->cause == SG_OOM_LIMIT && facts->also)
        sg_text_add(text, "; without the limit %s are short",
            sg_size_format(sg_oom_short_unlimited(facts->shortage, facts->around), size));
    if (is_also(facts, SG_OOM_OWN)) {
        sg_text_add(text, ", and ");
        put_own(text, &holders, whole);
    }
    if (is_also(facts, SG_OOM_OTHERS))
        sg_text_add(text, ", and other processes hold %s of %s", sg_size_format(holders.others, size), whole);
    if (is_also(facts, SG_OOM_GRAPHS))
        sg_text_add(text, ", and graphs keep %s that are freed", sg_size_format(facts->around->graphs, size));
    if (is_also(facts, SG_OOM_LIMIT))
        sg_text_add(text, ", and %s may be held at most", sg_size_format(facts->shortage->limit, size));
    if (is_also(facts, SG_OOM_QUOTA))
        sg_text_add(text, ", and the driver lets %s of %s be used", sg_size_format(facts->around->quota, size), whole);
    sg_text_add(text, "\n");
}

/* The line of the cause. */
static void put_cause(struct sg_text *text, const struct cause_facts *facts)
{
    const struct sg_shortage *shortage = facts->shortage;
    const struct sg_oom_around *around = facts->around;
    const struct sg_oom_holders holders = sg_oom_holders(around, shortage);
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT];
    uint64_t used = shortage->allocated - sg_oom_at_most(around->graphs, shortage->allocated);
    uint64_t most = sg_oom_room(sg_oom_total(shortage, around), shortage->limit, shortage->outside);
    sg_text_add(text, "  cause    ");
    switch (facts->cause) {
    case SG_OOM_TOO_BIG:
        sg_text_add(text, "too big: with the %s in use that is %s, of %s at most", sg_size_format(used, a),
            sg_size_format(used + shortage->asked, b), sg_size_format(most, c));
        break;
    case SG_OOM_FRAGMENTED:
        sg_text_add(text, "fragmented: %s are not in use, but not in one piece",
            sg_size_format(most - shortage->used, a));
        break;
    case SG_OOM_QUEUED:
        sg_text_add(text, "work still queued: it uses %s that are freed already",
            sg_size_format(shortage->pending + around->parked, a));
        break;
    case SG_OOM_GRAPHS:
        sg_text_add(text, "held for graphs: %s that are freed stay with the graphs that were captured with them",
            sg_size_format(around->graphs, a));
        break;
    case SG_OOM_LIMIT:
        sg_text_add(text, "limit: %s may be held of the device's %s, and %s are needed",
            sg_size_format(shortage->limit, a), sg_size_format(shortage->total, b),
            sg_size_format(shortage->allocated + shortage->asked, c));
        break;
    case SG_OOM_QUOTA:
        sg_text_add(text, "quota: the driver lets %s of the device's %s be used, and %s are needed",
            sg_size_format(around->quota, a), sg_size_format(shortage->total, b),
            sg_size_format(shortage->outside + shortage->allocated + shortage->asked, c));
        break;
    case SG_OOM_OTHERS:
        sg_text_add(text,
            around->host
                ? "the host: %s of the memory that this device shares with it are in use otherwise, or kept back"
                : "other processes hold %s of this device",
            sg_size_format(holders.others, a));
        break;
    case SG_OOM_POOLS:
        sg_text_add(text, "idle pools: this process keeps %s idle in pools of the driver",
            sg_size_format(holders.pools, a));
        break;
    case SG_OOM_OWN:
        sg_text_add(text, "%s: ", is_guards_alone(&holders) ? "guards" : "other calls");
        put_own(text, &holders, "this device");
        break;
    }
    put_also(text, facts);
}

/* The line of help for a cause. Every help names an option, a call or a program. */
static void put_help(struct sg_text *text, enum sg_oom_cause cause, const struct cause_facts *facts)
{
    const struct sg_conf *conf = facts->conf;
    const struct sg_device *device = facts->device;
    const struct sg_oom_holders holders = sg_oom_holders(facts->around, facts->shortage);
    if (cause == SG_OOM_OWN && holders.guards)
        sg_text_add(text,
            "  help     guard fewer blocks (a larger guard_rate, no guard_size or guard_site), or none\n");
    if (cause == SG_OOM_OWN && is_guards_alone(&holders))
        return;
    sg_text_add(text, "  help     ");
    switch (cause) {
    case SG_OOM_TOO_BIG:
        sg_text_add(text, "smaller batches or sequences, or checkpointing, need less\n");
        break;
    case SG_OOM_FRAGMENTED:
        sg_text_add(text, "%s\n",
            device && conf->page_size != SG_AUTO && conf->page_size > device->granularity
                ? "smaller pages waste less: unset page_size_mb"
            : device && device->mode == SG_MODE_SEGMENTS
                ? "pages can go where they are needed with expandable_segments:True"
                : "free, or allocate first, the small blocks that stay");
        break;
    case SG_OOM_QUEUED:
        sg_text_add(text, "%s\n",
            facts->around->parked                    ? "allocate before a graph is captured, or free before it"
            : facts->shortage->given_up              ? "a kernel that never ends? else raise wait_limit"
            : conf->free_sync == SG_FREE_SYNC_STRICT ? "synchronize before this allocation"
                                                     : "free_sync:strict waits for it");
        break;
    case SG_OOM_GRAPHS:
        sg_text_add(text, "destroy the graphs that are done with: cudaGraphExecDestroy() and cudaGraphDestroy(), or "
                          "reset() of PyTorch's CUDAGraph\n");
        break;
    case SG_OOM_LIMIT:
        put_limit(text, conf, facts->shortage);
        break;
    case SG_OOM_QUOTA:
        sg_text_add(text,
            "raise that quota: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT of MPS, or what a container or a virtual GPU has\n");
        break;
    case SG_OOM_OTHERS:
        if (facts->around->host)
            sg_text_add(text, "stop what uses the host's memory, or keep less of it back by a smaller host_reserve\n");
        else
            sg_text_add(text, "stop %s, or use another device\n", cause == facts->cause ? "them" : "those processes");
        break;
    case SG_OOM_POOLS:
        sg_text_add(text, "cudaMemPoolTrimTo() gives that back, and so does a lower release threshold of the pool\n");
        break;
    case SG_OOM_OWN:
        sg_text_add(text, "let go of what %s hold before this allocation, or have them take less\n",
            cause == facts->cause ? "they" : "other calls");
        break;
    }
}

/* The lines of help, for the first cause and for what has to go besides. */
static void put_helps(struct sg_text *text, const struct cause_facts *facts)
{
    put_help(text, facts->cause, facts);
    for (int cause = 0; cause <= SG_OOM_TOO_BIG; cause++) {
        if (is_also(facts, (enum sg_oom_cause)cause))
            put_help(text, (enum sg_oom_cause)cause, facts);
    }
}

/* The reason why memory elsewhere has not served a block, in words. `bytes`: what the option allows. */
static void put_overflow_lack(struct sg_text *text, enum sg_overflow_lack lack, bool peer, uint64_t bytes)
{
    char size[SG_SIZE_TEXT];
    if (lack == SG_OVERFLOW_NOT_ASKED)
        return;
    sg_text_add(text, "  overflow ");
    switch (lack) {
    case SG_OVERFLOW_SMALL:
        sg_text_add(text, "blocks of less than %s never lie elsewhere\n", sg_size_format(SG_OVERFLOW_LEAST, size));
        break;
    case SG_OVERFLOW_TAGGED:
        sg_text_add(text, "memory that may be paused never lies elsewhere\n");
        break;
    case SG_OVERFLOW_NO_PAGES:
        sg_text_add(text, "this driver makes no pages in the host's memory: CUDA 13.0 and later may\n");
        break;
    case SG_OVERFLOW_NO_NEIGHBOUR:
        sg_text_add(text, "this device reaches no other one's memory as its own\n");
        break;
    case SG_OVERFLOW_OPTION:
        sg_text_add(text, "overflow:%s=%s is less than is lacking; raise it\n", peer ? "peer" : "host",
            sg_size_format(bytes, size));
        break;
    case SG_OVERFLOW_ROOM:
        sg_text_add(text, "%s less memory to spare than is lacking\n",
            peer ? "the other device has" : "the host, or this process's control group, has");
        break;
    case SG_OVERFLOW_REGIONS:
        sg_text_add(text, "as many blocks lie elsewhere as may\n");
        break;
    default:
        sg_text_add(text, "the driver has refused pages elsewhere\n");
    }
}

/* The reasons why overflow has not served, where its option is on. */
static void put_overflow(struct sg_text *text, const struct sg_conf *conf, const struct sg_overflow_lacks *lacks)
{
    put_overflow_lack(text, lacks->any, false, 0);
    if (lacks->any)
        return;
    put_overflow_lack(text, lacks->peer, true, conf->overflow.peer);
    put_overflow_lack(text, lacks->host, false, conf->overflow.host);
}

/* The use of the device's memory, in lines whose parts add up to all of it. */
static void put_memory(struct sg_text *text, const struct sg_shortage *shortage, const struct sg_oom_around *around,
    const struct sg_oom_page *page, bool worst)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT], d[SG_SIZE_TEXT], e[SG_SIZE_TEXT], f[SG_SIZE_TEXT];
    uint64_t known = shortage->used + shortage->idle, held = shortage->reserved;
    struct sg_shortage fits = *shortage;
    uint64_t total = sg_oom_total(shortage, around);
    fits.outside = sg_oom_at_most(total - sg_oom_at_most(held, total), shortage->outside);
    const struct sg_oom_holders holders = sg_oom_holders(around, &fits);
    sg_text_add(text, "  device   %s: %s held by segalloc", sg_size_format(shortage->total, a), sg_size_format(held, b));
    if (holders.own + holders.pools)
        sg_text_add(text, ", %s by this process otherwise", sg_size_format(holders.own + holders.pools, c));
    if (total < shortage->total)
        sg_text_add(text, ", %s beyond the driver's quota", sg_size_format(shortage->total - total, c));
    sg_text_add(text, ", %s in use by others, %s free\n", sg_size_format(holders.others + holders.rest, c),
        sg_size_format(total - sg_oom_at_most(held + fits.outside, total), d));
    uint64_t graphs = sg_oom_at_most(around->graphs, shortage->allocated);
    sg_text_add(text, "  segalloc %s: %s in use, ", sg_size_format(held, a),
        sg_size_format(shortage->allocated - graphs, b));
    if (graphs)
        sg_text_add(text, "%s freed but held for graphs, ", sg_size_format(graphs, b));
    sg_text_add(text, "%s freed but still in use by queued work, %s idle", sg_size_format(shortage->pending, c),
        sg_size_format(shortage->idle, d));
    if (page->pages)
        sg_text_add(text, ", %s idle in %llu partly used page%s", sg_size_format(held > known ? held - known : 0, e),
            (unsigned long long)page->pages, sg_plural(page->pages));
    else if (held > known)
        sg_text_add(text, ", %s idle in partly used segments", sg_size_format(held - known, e));
    sg_text_add(text, "\n");
    if (page->pages && worst)
        sg_text_add(text, "  worst    %s in use keep a page of %s (at 0x%llx, a block of %s)\n",
            sg_size_format(page->used, e), sg_size_format(page->page_bytes, f), (unsigned long long)page->page,
            sg_size_format(page->block, a));
}

/* The program's command for lines to copy; CMD where it is unknown. */
static const char *command_of(const struct sg_oom_around *around)
{
    return around->command && *around->command ? around->command : "CMD";
}

/* The line that says how to find the code that asked for the live blocks: the next command does, or one of its own. */
static void put_lines(struct sg_text *text, enum sg_oom_cause cause, const struct sg_oom_around *around)
{
    sg_text_add(text, "  lines    ");
    if (cause == SG_OOM_TOO_BIG)
        sg_text_add(text, "the next command names the code that asked for these, and what the whole run needs\n");
    else if (cause == SG_OOM_FRAGMENTED)
        sg_text_add(text, "the next command names the code that asked for these\n");
    else
        sg_text_add(text, "segalloc run --sites -- %s\n", command_of(around));
}

/* The largest groups of live blocks, a line each. */
static void put_live(struct sg_text *text, const struct sg_live_row *row, uint32_t rows,
    const struct sg_oom_around *around, enum sg_oom_cause cause)
{
    char bytes[SG_SIZE_TEXT], mean[SG_SIZE_TEXT], site[160];
    bool sites = false;
    for (uint32_t i = 0; i < rows; i++) {
        sg_text_add(text, "  holds    %s in %llu block%s", sg_size_format(row[i].bytes, bytes),
            (unsigned long long)row[i].blocks, sg_plural(row[i].blocks));
        if (row[i].blocks > 1)
            sg_text_add(text, ", %s on average", sg_size_format(row[i].bytes / row[i].blocks, mean));
        if (row[i].key.site && around->site && around->site(row[i].key.site, site, sizeof site)) {
            sg_text_add(text, ", asked for at %s", site);
            sites = true;
        }
        sg_text_add(text, "\n");
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
static void put_next_limit(struct sg_text *text, const struct sg_conf *conf, const struct sg_shortage *shortage,
    const char *command)
{
    const struct sg_oom_limit source = sg_oom_limit(conf, shortage);
    unsigned part = part_hundredths(source.need, shortage->total);
    char size[SG_SIZE_TEXT];
    if (!source.option && !source.fraction) {
        uint64_t whole = (source.need + SG_MIB - 1) / SG_MIB * SG_MIB;
        sg_text_add(text,
            "in the program: torch.cuda.set_per_process_memory_fraction(%u.%02u), or segalloc.set_limit(%llu)\n",
            part / 100, part % 100, (unsigned long long)whole);
        return;
    }
    sg_text_add(text, "segalloc run --conf ");
    if (source.option)
        sg_text_add(text, "limit:%s", size_argument(source.need, size));
    if (source.fraction)
        sg_text_add(text, "%sper_process_memory_fraction:%u.%02u", source.option ? "," : "", part / 100, part % 100);
    sg_text_add(text, " -- %s\n", command);
}

/* The next command. Where it takes more than a higher limit, a rehearsal says what the program needs. */
static void put_next(struct sg_text *text, const struct cause_facts *facts)
{
    const struct sg_conf *conf = facts->conf;
    const struct sg_shortage *shortage = facts->shortage;
    const struct sg_oom_around *around = facts->around;
    const char *command = command_of(around);
    char size[SG_SIZE_TEXT];
    sg_text_add(text, "  next     ");
    uint64_t card = sg_oom_total(shortage, around); /* of a quota: how much more it would have to be */
    switch (facts->cause == SG_OOM_LIMIT && facts->also ? SG_OOM_OWN : facts->cause) {
    case SG_OOM_FRAGMENTED:
        sg_text_add(text,
            "segalloc run --sites -o run.trace -- %s\n  next     segalloc report run.trace: which blocks keep which "
            "pages\n",
            command);
        break;
    case SG_OOM_LIMIT:
        put_next_limit(text, conf, shortage, command);
        break;
    case SG_OOM_TOO_BIG:
    case SG_OOM_GRAPHS:
    case SG_OOM_QUOTA:
    case SG_OOM_POOLS:
    case SG_OOM_OWN:
        sg_text_add(text, "segalloc rehearse --card %s -- %s\n", size_argument(card, size), command);
        break;
    case SG_OOM_OTHERS:
        if (!around->processes) {
            sg_text_add(text, "nvidia-smi\n");
            break;
        }
        sg_text_add(text, "ps -fp ");
        for (size_t i = 0; i < around->processes; i++)
            sg_text_add(text, "%s%d", i ? "," : "", around->process[i].pid);
        sg_text_add(text, "\n");
        break;
    case SG_OOM_QUEUED:
        if (around->parked)
            sg_text_add(text, "segalloc run -o run.trace -- %s\n", command);
        else if (shortage->given_up || conf->free_sync == SG_FREE_SYNC_STRICT)
            sg_text_add(text, "segalloc run --conf wait_limit:%.0f -- %s\n", 10 * conf->wait_limit + 10, command);
        else
            sg_text_add(text, "segalloc run --conf free_sync:strict -- %s\n", command);
        break;
    }
}

/* The text is made without the lock, because it asks for names of places, which may take long. */
size_t sg_core_oom_text(struct sg_core *core, int ordinal, const struct sg_oom_around *around, char *buffer, size_t size)
{
    static const struct sg_oom_around nothing = {0};
    struct sg_text text = {buffer, size, 0};
    struct sg_oom_facts facts;
    if (size)
        *buffer = '\0';
    around = around ? around : &nothing;
    if (!sg_oom_facts(core, ordinal, around, &facts))
        return 0;
    enum sg_oom_cause cause = sg_oom_cause(&facts.shortage, around);
    const struct cause_facts causes = {cause, sg_oom_also(&facts.shortage, around, cause), &core->conf, facts.device,
        &facts.shortage, around};
    put_first(&text, ordinal, &facts.shortage);
    put_cause(&text, &causes);
    put_helps(&text, &causes);
    put_overflow(&text, &core->conf, &facts.shortage.overflow_lacks);
    put_holders(&text, around, sg_oom_holders(around, &facts.shortage).others);
    put_host(&text, around->host);
    put_memory(&text, &facts.shortage, around, &facts.worst, cause == SG_OOM_FRAGMENTED);
    put_live(&text, facts.row, facts.rows, around, cause);
    put_next(&text, &causes);
    return text.length;
}
