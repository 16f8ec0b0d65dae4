#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report.h"
#include "size.h"

static void figure(uint64_t value, const char *unit)
{
    char text[SG_SIZE_TEXT];
    if (!strcmp(unit, "BYTES"))
        printf(" %14s", sg_size_format(value, text));
    else if (!strcmp(unit, "NS"))
        printf(" %12.3f s", (double)value / 1e9);
    else
        printf(" %14" PRIu64, value);
}

static void level(const struct sg_findings_device *device, enum sg_stat stat, const char *name)
{
    const struct sg_stat_info *info = sg_stat_info(stat);
    if (!device->known[stat])
        return;
    printf("  %-22s", name);
    figure(device->stats.value[stat], info->unit);
    figure(device->stats.peak[stat], info->unit);
    printf("   %s\n", info->text);
}

static void levels(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    static const struct {
        enum sg_stat stat;
        const char *name;
        bool always;
    } rows[] = {
        {SG_STAT_requested_bytes, "requested", true},        {SG_STAT_allocated_bytes, "allocated", true},
        {SG_STAT_pending_bytes, "pending", true},            {SG_STAT_reserved_bytes, "reserved", true},
        {SG_STAT_stranded_bytes, "stranded", true},          {SG_STAT_inactive_split_bytes, "inactive split", false},
        {SG_STAT_pinned_bytes, "pinned", false},             {SG_STAT_aliased_bytes, "aliased", false},
        {SG_STAT_small_reserved_bytes, "reserved for small", false}, {SG_STAT_allocations, "blocks", true},
        {SG_STAT_pages, "pages", false},
    };
    printf("  %-22s %14s %14s\n", "", findings->running ? "now" : "at the end", "peak");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].always || device->stats.peak[rows[i].stat])
            level(device, rows[i].stat, rows[i].name);
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    bool free_known = device->known[SG_STAT_largest_free_bytes];
    if (free_known || device->largest_request)
        putchar('\n');
    if (device->largest_request)
        printf("  largest request %s", sg_size_format(device->largest_request, a));
    if (free_known)
        printf("%slargest free range %s %s", device->largest_request ? ", " : "  ", findings->running ? "now" : "at the end",
               sg_size_format(device->stats.value[SG_STAT_largest_free_bytes], b));
    if (device->failed_largest)
        printf(", largest that failed %s", sg_size_format(device->failed_largest, a));
    if (free_known || device->largest_request)
        putchar('\n');
}

/* Counters that are not zero, under a heading of their own. */
static void counters(const struct sg_findings *findings, const struct sg_findings_device *device, const char *heading,
                     enum sg_stat first, enum sg_stat last)
{
    bool any = false;
    for (int i = first; i <= (int)last; i++) {
        const struct sg_stat_info *info = sg_stat_info((enum sg_stat)i);
        if (info->kind != SG_STAT_COUNTER || !device->known[i] || !device->stats.value[i])
            continue;
        if (!any)
            printf("\n%s\n", heading);
        any = true;
        printf("  %-22s", info->name);
        figure(device->stats.value[i], info->unit);
        printf("   %s\n", findings->imported ? "in the trace" : info->text);
    }
}

static void histogram(const struct sg_findings_device *device)
{
    enum { WIDTH = 40 };
    static const char bar[WIDTH + 1] = "########################################";
    uint64_t most = 0;
    for (int i = 0; device->has_classes && i < SG_SIZE_CLASSES; i++)
        most = device->class_count[i] > most ? device->class_count[i] : most;
    if (!most)
        return;
    puts("\nSizes asked for");
    for (int i = 0; i < SG_SIZE_CLASSES; i++) {
        char from[SG_SIZE_TEXT];
        uint64_t count = device->class_count[i];
        if (!count)
            continue;
        int length = (int)((double)count / (double)most * WIDTH + 0.999);
        printf("  from %12s %12" PRIu64 "  %.*s\n", sg_size_format(i ? UINT64_C(1) << (i - 1) : 0, from), count, length,
               bar);
    }
}

/* What was alive, largest groups first. */
static void live_set(const char *heading, const struct sg_live_set *set)
{
    enum { ROWS = 12 };
    bool shown[SG_SIZE_CLASSES] = {false};
    char size[SG_SIZE_TEXT], bytes[SG_SIZE_TEXT];
    for (int row = 0; row < ROWS; row++) {
        int next = -1;
        for (int i = 0; i < SG_SIZE_CLASSES; i++)
            if (!shown[i] && set->class[i].bytes && (next < 0 || set->class[i].bytes > set->class[next].bytes))
                next = i;
        if (next < 0)
            return;
        if (row == 0)
            printf("\n%s\n  %14s %14s %10s   %s\n", heading, "", "blocks from", "blocks", "mean age in allocations");
        shown[next] = true;
        printf("  %14s %14s %10" PRIu64 "   %" PRIu64 "\n", sg_size_format(set->class[next].bytes, bytes),
               sg_size_format(next ? UINT64_C(1) << (next - 1) : 0, size), set->class[next].blocks,
               sg_live_age(set, (unsigned)next));
    }
}

/* Allocations that failed, and what was alive at the largest of them. */
static void failures(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    enum { ROWS = 8 };
    char bytes[SG_SIZE_TEXT], live[SG_SIZE_TEXT], lack[SG_SIZE_TEXT], heading[96];
    int rows = 0;
    for (uint32_t i = 0; i < findings->failures && rows < ROWS; i++) {
        const struct sg_summary_failure *failure = &findings->failure[i];
        if (failure->device != device->ordinal)
            continue;
        if (rows++ == 0)
            puts("\nAllocations that failed");
        printf("  event %" PRIu64 ": %s asked for with %s in use", failure->event, sg_size_format(failure->bytes, bytes),
               sg_size_format(failure->live_bytes, live));
        printf("%s%s\n", failure->short_by ? ", short by " : "",
               failure->short_by ? sg_size_format(failure->short_by, lack) : "");
    }
    if (rows && device->stats.value[SG_STAT_ooms] > (uint64_t)rows)
        printf("  and %" PRIu64 " more\n", device->stats.value[SG_STAT_ooms] - (uint64_t)rows);
    snprintf(heading, sizeof heading, "Alive when %s failed", sg_size_format(device->failed_largest, bytes));
    if (rows)
        live_set(heading, &device->at_failure);
}

static void print_device(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    char a[SG_SIZE_TEXT];
    printf("\nDevice %" PRIu32, device->ordinal);
    if (device->total_bytes)
        printf(", %s", sg_size_format(device->total_bytes, a));
    if (device->limit_bytes)
        printf(", limit %s", sg_size_format(device->limit_bytes, a));
    if (device->smallest_card)
        printf(", smallest card %s%s", findings->at_least ? "at least " : "", sg_size_format(device->smallest_card, a));
    if (sg_findings_utilization(device) >= 0)
        printf(", utilization %.1f %%", sg_findings_utilization(device) * 100);
    putchar('\n');
    levels(findings, device);
    if (findings->end_text && device->known[SG_STAT_reserved_bytes] && device->stats_age)
        printf("  (at least: allocated, pending, reserved and what follows are as of %" PRIu64 " event%s before the end)\n",
               device->stats_age, device->stats_age == 1 ? "" : "s");
    failures(findings, device);
    live_set("Alive at the peak", &device->at_peak);
    histogram(device);
    counters(findings, device, "Churn", 0, SG_STAT_calls_reserve - 1);
    counters(findings, device, "Calls of the driver", SG_STAT_calls_reserve, SG_STAT_COUNT - 1);
}

static void print_advice(void *user, const char *line)
{
    bool *any = user;
    if (!*any)
        puts("\nAdvice");
    *any = true;
    printf("  %s\n", line);
}

static void glossary(void)
{
    puts("\nWords\n"
         "  requested   asked for by the program and not freed; allocated: the same after rounding\n"
         "  pending     freed, but queued work may still use it\n"
         "  reserved    physical memory held\n"
         "  stranded    reserved, neither allocated nor pending; its peak: what was\n"
         "              reserved at the peak beyond the most that was in use at once\n"
         "  utilization peak allocated / peak reserved; fragmentation is 1 minus that");
}

void sg_report_text(const struct sg_findings *findings)
{
    char verdict[1024];
    bool advised = false;
    puts(sg_findings_verdict(findings, verdict, sizeof(verdict)));
    if (findings->begin_text)
        printf("Not all is known: %s.\n", findings->begin_text);
    if (findings->end_text)
        printf("The trace is incomplete: %s. It was read to the last %s.\n", findings->end_text,
               findings->damaged ? "whole block before" : "complete record");
    if (*findings->untracked_by)
        printf("The order of streams was lost at the program's call of %s, which this version does not know: from there on "
               "freed memory waited for all work of the device.\n", findings->untracked_by);
    if (findings->dropped)
        printf("%" PRIu64
               " events are missing from it: what follows comes from the others and from the last statistics.\n",
               findings->dropped);
    for (uint32_t i = 0; i < findings->devices; i++)
        print_device(findings, &findings->device[i]);
    sg_findings_advice(findings, print_advice, &advised);
    puts("\nSource");
    printf("  %-10s %s, %s", "file", findings->path, findings->trace ? "a trace" : "statistics");
    if (findings->trace)
        printf(" of %" PRIu64 " events", findings->events);
    printf(", %.1f s\n", (double)findings->duration_ns / 1e9);
    if (*findings->command)
        printf("  %-10s %s\n", "command", findings->command);
    if (findings->pid)
        printf("  %-10s %" PRIu64 "\n", "process", findings->pid);
    if (!findings->imported)
        printf("  %-10s %s\n", "conf", *findings->conf ? findings->conf : "defaults");
    glossary();
}

/* Below the ranks: what all did together, and the most that one of them needed. */
static void print_all(const struct sg_findings *const *findings, size_t count, int width)
{
    struct sg_findings all = {.utilization = 2};
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], used[16] = "-";
    bool reserved = true;
    for (size_t i = 0; i < count; i++) {
        const struct sg_findings *file = findings[i];
        all.allocs += file->allocs + file->passed_on;
        all.ooms += file->ooms;
        reserved = reserved && file->knows_reserved;
        if (file->peak_requested > all.peak_requested)
            all.peak_requested = file->peak_requested;
        if (file->peak_reserved > all.peak_reserved)
            all.peak_reserved = file->peak_reserved;
        if (file->utilization < all.utilization)
            all.utilization = file->utilization;
    }
    if (all.utilization >= 0 && all.utilization <= 1)
        snprintf(used, sizeof(used), "%.1f %%", all.utilization * 100);
    printf("%4s %-*s %8s %12" PRIu64 " %14s %14s %12s %6" PRIu64 "\n", "all", width,
           "(total; highest peak; lowest utilization)", "", all.allocs, sg_size_format(all.peak_requested, a),
           reserved ? sg_size_format(all.peak_reserved, b) : "-", used, all.ooms);
}

void sg_report_table(const struct sg_findings *const *findings, size_t count)
{
    int width = 4;
    bool ranks = true;
    for (size_t i = 0; i < count; i++) {
        int length = (int)strlen(findings[i]->path);
        width = length > width ? length : width;
        ranks = ranks && findings[i]->rank >= 0;
    }
    if (ranks)
        printf("%4s ", "rank");
    if (ranks && width < 41)
        width = 41;
    printf("%-*s %8s %12s %14s %14s %12s %6s\n", width, "file", "served", "allocations", "peak requested",
           "peak reserved", "utilization", "OOMs");
    for (size_t i = 0; i < count; i++) {
        const struct sg_findings *file = findings[i];
        char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], served[16] = "-", used[16] = "-";
        if (file->served_share >= 0 && !file->imported)
            snprintf(served, sizeof(served), "%.1f %%", file->served_share * 100);
        if (file->utilization >= 0)
            snprintf(used, sizeof(used), "%.1f %%", file->utilization * 100);
        if (ranks)
            printf("%4" PRId64 " ", file->rank);
        printf("%-*s %8s %12" PRIu64 " %14s %14s %12s %6" PRIu64 "%s\n", width, file->path, served,
               file->allocs + file->passed_on, sg_size_format(file->peak_requested, a),
               file->knows_reserved ? sg_size_format(file->peak_reserved, b) : "-", used, file->ooms,
               file->end_text ? "  incomplete" : "");
    }
    if (ranks)
        print_all(findings, count, width);
}
