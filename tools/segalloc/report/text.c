#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/report.h"
#include "plain_text.h"
#include "size.h"
#include "tool.h"

enum { PATH_TEXT = 4096, COMMAND_TEXT = 8192 };

static void report_print_figure(uint64_t value, const char *unit)
{
    char text[SG_SIZE_TEXT];
    if (!strcmp(unit, "BYTES"))
        printf(" %14s", sg_size_format(value, text));
    else if (!strcmp(unit, "NS"))
        printf(" %12.3f s", (double)value / 1e9);
    else
        printf(" %14" PRIu64, value);
}

/* The rest of a line that has `column` characters, in lines of 80. */
static void print_wrapped(int column, const char *text)
{
    enum { WIDTH = 80 };
    int at = column;
    for (const char *word = text; *word;) {
        int length = (int)strcspn(word, " ");
        if (at > column && at + 1 + length > WIDTH) {
            printf("\n%*s", column, "");
            at = column;
        }
        at += printf("%s%.*s", at > column ? " " : "", length, word);
        word += length + (word[length] == ' ');
    }
    putchar('\n');
}

static void report_print_level(const struct sg_findings_device *device, enum sg_stat stat, const char *name,
    bool explained)
{
    const struct sg_stat_info *info = sg_stat_info(stat);
    if (!device->known[stat])
        return;
    printf("  %-22s", name);
    report_print_figure(device->stats.value[stat], info->unit);
    report_print_figure(device->stats.peak[stat], info->unit);
    fputs(explained ? "" : "  ", stdout);
    print_wrapped(56, explained ? "" : info->text); /* the words at the end have it */
}

static void report_print_levels(const struct sg_findings *findings, const struct sg_findings_device *device)
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
            report_print_level(device, rows[i].stat, rows[i].name, rows[i].always);
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    bool free_known = device->known[SG_STAT_largest_free_bytes];
    if (free_known || device->largest_request)
        putchar('\n');
    if (device->largest_request)
        printf("  largest request %s", sg_size_format(device->largest_request, a));
    if (free_known)
        printf("%slargest free range %s %s", device->largest_request ? ", " : "  ",
            findings->running ? "now" : "at the end",
            sg_size_format(device->stats.value[SG_STAT_largest_free_bytes], b));
    if (device->failed_largest)
        printf(", largest that failed %s", sg_size_format(device->failed_largest, a));
    if (free_known || device->largest_request)
        putchar('\n');
}

/* Counters that are not zero, under a heading of their own. */
static void report_print_counters(const struct sg_findings *findings, const struct sg_findings_device *device,
    const char *heading, enum sg_stat first, enum sg_stat last)
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
        report_print_figure(device->stats.value[i], info->unit);
        fputs("   ", stdout);
        print_wrapped(42, findings->imported ? "in the trace" : info->text);
    }
}

/* Allocations that failed. */
static void list_failures(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    enum { ROWS = 8 };
    char bytes[SG_SIZE_TEXT], live[SG_SIZE_TEXT], lack[SG_SIZE_TEXT], place[SG_SITE_TEXT];
    int rows = 0;
    for (uint32_t i = 0; i < findings->failures && rows < ROWS; i++) {
        const struct sg_summary_failure *failure = &findings->failure[i];
        if (failure->device != device->ordinal)
            continue;
        if (rows++ == 0)
            puts("\nAllocations that failed");
        printf("  event %" PRIu64 ": %s asked for%s%s%s with %s in use", failure->event,
            failure->bytes ? sg_size_format(failure->bytes, bytes) : "memory", failure->by ? " " : "",
            failure->by ? sg_outside_refused(failure->by) : "", failure->by ? ", refused," : "",
            sg_size_format(failure->live_bytes, live));
        printf("%s%s", failure->short_by ? ", short by " : "",
               failure->short_by ? sg_size_format(failure->short_by, lack) : "");
        sg_site_book_line(&findings->book, failure->site, place);
        printf("%s%s", *place ? ", at " : "", place);
        sg_site_book_phase(&findings->book, failure->phase, place);
        printf("%s%s\n", *place ? ", in " : "", place);
    }
    if (rows && device->stats.value[SG_STAT_ooms] > (uint64_t)rows)
        printf("  and %" PRIu64 " more\n", device->stats.value[SG_STAT_ooms] - (uint64_t)rows);
}

/* They, and what was alive at the largest of them. */
static void report_print_failures(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    char bytes[SG_SIZE_TEXT], heading[128];
    list_failures(findings, device);
    const struct sg_summary_failure *largest = sg_findings_largest_failure(findings, device);
    if (!largest)
        return;
    snprintf(heading, sizeof heading, "Alive when %s failed (event %" PRIu64 ")", sg_size_format(largest->bytes, bytes),
             largest->event);
    sg_report_live(findings, heading, &largest->live);
}

static bool live_sets_same(const struct sg_live_set *a, const struct sg_live_set *b)
{
    bool same = a->rows == b->rows;
    for (uint32_t i = 0; i < a->rows && same; i++)
        same = a->row[i].bytes == b->row[i].bytes && a->row[i].blocks == b->row[i].blocks;
    return same;
}

/* Memory by other calls, when most was taken: a row for each kind. */
static void report_print_outside(const struct sg_findings_device *device)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    if (!sg_outside_sum(&device->outside))
        return;
    uint64_t stays = sg_outside_stays(&device->outside);
    printf("\nAt the peak %s were taken, %s of them by calls that segalloc does not serve\n",
        sg_size_format(device->peak_taken, a), sg_size_format(stays, b));
    for (int i = 0; i < SEGALLOC_OUTSIDE_COUNT; i++)
        if (device->outside.bytes[i])
            printf("  %12s %s\n", sg_size_format(device->outside.bytes[i], a), sg_outside_call((enum segalloc_outside)i));
}

/* The roles of the memory where it ran out, or else when most was in use. */
static void report_print_roles(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    char bytes[SG_SIZE_TEXT];
    enum sg_role order[SG_ROLE_COUNT];
    const struct sg_summary_failure *largest = sg_findings_largest_failure(findings, device);
    const struct sg_roles *roles = largest ? &findings->failure_roles[largest - findings->failure] : &device->roles;
    uint32_t count = sg_roles_order(roles, order);
    if (count && largest)
        printf("\nAlive when %s failed (event %" PRIu64 "), by role\n", sg_size_format(largest->bytes, bytes),
            largest->event);
    else if (count)
        puts("\nAlive at the peak of requested, by role");
    for (uint32_t i = 0; i < count; i++)
        printf("  %12s %s\n", sg_size_format(roles->bytes[order[i]], bytes), sg_role_text(order[i]));
}

/* The holders of the memory where it ran out, or else when most was in use. */
static void report_print_held(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    report_print_failures(findings, device);
    sg_report_live(findings, "Alive at the peak of requested", &device->at_peak);
    if (device->failed.event) {
        sg_report_moment(findings, "at that failure", &device->failed);
        return;
    }
    if (device->fullest.event && !live_sets_same(&device->at_peak, &device->at_reserved))
        sg_report_live(findings, "Alive at the peak of reserved", &device->at_reserved);
    sg_report_moment(findings, "when most was reserved", &device->fullest);
}

/* Lines of code at the peak, or where the largest allocation failed. */
static void held_by_line(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    char heading[128], bytes[SG_SIZE_TEXT];
    const struct sg_summary_failure *largest = sg_findings_largest_failure(findings, device);
    if (largest)
        snprintf(heading, sizeof heading, "Alive when %s failed (event %" PRIu64 "), by line", sg_size_format(largest->bytes, bytes),
            largest->event);
    sg_report_lines(findings, largest ? heading : "Alive at the peak of requested, by line", largest ? &largest->live : &device->at_peak);
}

static void print_device(const struct sg_findings *findings, const struct sg_findings_device *device, bool all)
{
    char a[SG_SIZE_TEXT];
    printf("\nDevice %" PRIu32 "%s%s", device->ordinal, *device->model ? ", " : "", device->model);
    if (device->total_bytes)
        printf(", %s%s", sg_size_format(device->total_bytes, a), findings->cards ? " asked about" : "");
    if (device->limit_bytes)
        printf(", limit %s", sg_size_format(device->limit_bytes, a));
    if (device->smallest_card)
        printf(", smallest card %s%s", findings->at_least ? "at least " : "", sg_size_format(device->smallest_card, a));
    if (sg_findings_utilization(device) >= 0)
        printf(", utilization %.1f %%", sg_findings_utilization(device) * 100);
    putchar('\n');
    sg_report_over_time(device);
    report_print_outside(device);
    if (!all && device->at_peak.rows) {
        list_failures(findings, device);
        held_by_line(findings, device);
        report_print_roles(findings, device);
        return;
    }
    report_print_levels(findings, device);
    if (findings->end_text && device->known[SG_STAT_reserved_bytes] && device->stats_age)
        printf("  (at least: allocated, pending, reserved and what follows are as of %" PRIu64
               " event%s before the end)\n",
            device->stats_age, sg_plural(device->stats_age));
    report_print_held(findings, device);
    report_print_roles(findings, device);
    report_print_counters(findings, device, "Churn", 0, SG_STAT_checked_frees - 1);
    report_print_counters(findings, device, "Check", SG_STAT_checked_frees, SG_STAT_calls_reserve - 1);
    report_print_counters(findings, device, "Calls of the driver", SG_STAT_calls_reserve, SG_STAT_COUNT - 1);
}

static void report_print_checked_line(void *user, const char *label, const char *line)
{
    (void)user;
    printf("    %-8s ", label);
    sg_tool_print_plain(line);
    putchar('\n');
}

/* The findings of a run that checked itself, with the lines that it wrote to standard error. */
static void report_print_checked(const struct sg_findings *findings)
{
    char sum[1024];
    uint32_t kept = sg_checked_kept(&findings->checked);
    if (!*sg_report_checked_sum(findings, sum, sizeof sum))
        return;
    printf("\nCheck: %s\n", sum);
    for (uint32_t i = 0; i < kept; i++) {
        printf("  %s\n", sg_report_checked_words(&findings->checked.finding[i]));
        sg_report_checked_lines(findings, &findings->checked.finding[i], report_print_checked_line, NULL);
    }
    if (findings->checked.count > kept)
        printf("  and %" PRIu64 " more\n", findings->checked.count - kept);
}

/* Lines of code that keep more with each step. Without `all` the fastest alone. */
static void report_print_growth(const struct sg_findings *findings, bool all)
{
    enum { FASTEST = 5 };
    const struct sg_growth *growth = &findings->growth;
    uint32_t rows = all || growth->rows < FASTEST ? growth->rows : FASTEST;
    char place[SG_SITE_TEXT], a_step[SG_SIZE_TEXT], grown[SG_SIZE_TEXT];
    if (rows)
        printf("\nMemory that grows with each step, to step %" PRIu64 "\n", growth->last_step);
    for (uint32_t i = 0; i < rows; i++) {
        const struct sg_growth_row *row = &growth->row[i];
        sg_site_book_line(&findings->book, row->site, place);
        printf("  %12s a step since step %" PRIu64 ", %s so far: ", sg_size_format(row->bytes_a_step, a_step),
            row->since_step, sg_size_format(row->grown, grown));
        sg_tool_print_plain(*place ? place : "where, is not known");
        sg_site_book_caller(&findings->book, row->site, place);
        fputs(*place ? ", called at " : "", stdout);
        sg_tool_print_plain(place);
        putchar('\n');
    }
    if (rows < growth->rows)
        printf("  and %" PRIu32 " more lines\n", growth->rows - rows);
    for (uint32_t i = 0; i < findings->devices; i++) {
        uint64_t ends = sg_findings_growth_ends(findings, findings->device[i].ordinal);
        uint64_t size = findings->device[i].limit_bytes ? findings->device[i].limit_bytes
                                                        : findings->device[i].total_bytes;
        if (ends)
            printf("  So %s of device %" PRIu32 " are full at about step %" PRIu64 ".\n", sg_size_format(size, a_step),
                findings->device[i].ordinal, ends);
    }
}

static void report_print_advice(void *user, const char *line)
{
    bool *any = user;
    if (!*any)
        puts("\nAdvice");
    *any = true;
    printf("  %s\n", line);
}

static void report_print_glossary(void)
{
    puts("\nWords\n"
         "  requested   asked for by the program and not freed\n  allocated   requested, after rounding up\n"
         "  pending     freed, but queued work may still use it\n"
         "  reserved    physical memory held\n"
         "  stranded    reserved, neither allocated nor pending; its peak: what was\n"
         "              reserved at the peak beyond the most that was in use at once\n"
         "  utilization peak allocated / peak reserved; fragmentation is 1 minus that");
}

static const char *plain_path(const struct sg_findings *findings, char ret[PATH_TEXT])
{
    snprintf(ret, PATH_TEXT, "%s", findings->path);
    sg_plain_text(ret);
    return ret;
}

static void print_conf(const char *conf)
{
    printf("  %-10s ", "conf");
    sg_tool_print_plain(conf);
    putchar('\n');
}

static const char *plain_command(const struct sg_findings *findings, char ret[COMMAND_TEXT])
{
    snprintf(ret, COMMAND_TEXT, "%s", findings->command);
    sg_plain_text(ret);
    return ret;
}

void sg_report_text(const struct sg_findings *findings, bool all)
{
    char verdict[1024], path[PATH_TEXT], command[COMMAND_TEXT];
    bool advised = false;
    puts(sg_findings_verdict(findings, verdict, sizeof(verdict)));
    if (findings->begin_text)
        printf("Not all is known: %s.\n", findings->begin_text);
    if (findings->end_text)
        printf("The trace is incomplete: %s. It was read to the last %s.\n", findings->end_text,
               findings->damaged ? "whole block before" : "complete record");
    if (*findings->untracked_by)
        printf("The order of streams was lost at the program's call of %s, which this version does not know: from "
               "there on "
               "freed memory waited for all work of the device.\n",
            findings->untracked_by);
    if (findings->dropped)
        printf("%" PRIu64
               " event%s missing from it: what follows comes from the others and from the last statistics.\n",
            findings->dropped, findings->dropped == 1 ? " is" : "s are");
    report_print_checked(findings);
    for (uint32_t i = 0; i < findings->devices; i++)
        print_device(findings, &findings->device[i], all);
    report_print_growth(findings, all);
    sg_findings_advice(findings, report_print_advice, &advised);
    if (!all) {
        puts("\nLevels, sizes, pages, counters and words: --all");
        return;
    }
    puts("\nSource");
    printf("  %-10s %s, %s", "file", plain_path(findings, path), findings->trace ? "a trace" : "statistics");
    if (findings->trace)
        printf(" of %" PRIu64 " event%s", findings->events, sg_plural(findings->events));
    printf(", %.1f s\n", (double)findings->duration_ns / 1e9);
    if (*findings->command)
        printf("  %-10s %s\n", "command", plain_command(findings, command));
    if (findings->pid)
        printf("  %-10s %" PRIu64 "\n", "process", findings->pid);
    if (!findings->imported)
        print_conf(*findings->conf ? findings->conf : "defaults");
    report_print_glossary();
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
        char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], served[16] = "-", used[16] = "-", path[PATH_TEXT];
        if (file->served_share >= 0 && !file->imported)
            snprintf(served, sizeof(served), "%.1f %%", file->served_share * 100);
        if (file->utilization >= 0)
            snprintf(used, sizeof(used), "%.1f %%", file->utilization * 100);
        if (ranks)
            printf("%4" PRId64 " ", file->rank);
        printf("%-*s %8s %12" PRIu64 " %14s %14s %12s %6" PRIu64 "%s\n", width, plain_path(file, path), served,
            file->allocs + file->passed_on, sg_size_format(file->peak_requested, a),
            file->knows_reserved ? sg_size_format(file->peak_reserved, b) : "-", used, file->ooms,
            file->end_text ? "  incomplete" : "");
    }
    if (ranks)
        print_all(findings, count, width);
}
