#include <inttypes.h>
#include <stdio.h>

#include "report/report.h"
#include "tool.h"

static void number(const char *name, uint64_t value, bool known)
{
    if (known)
        printf(",\"%s\":%" PRIu64, name, value);
    else
        printf(",\"%s\":null", name);
}

static void ratio(const char *name, double value)
{
    if (value >= 0)
        printf(",\"%s\":%.6f", name, value);
    else
        printf(",\"%s\":null", name);
}

static void fragmentation(double utilization)
{
    ratio("utilization", utilization);
    ratio("fragmentation", utilization < 0 ? -1 : utilization < 1 ? 1 - utilization : 0);
}

static void place(const char *name, const char *text)
{
    printf(",\"%s\":", name);
    if (*text)
        sg_tool_json_string(text);
    else
        fputs("null", stdout);
}

/* What the blocks of a group have in common. What has no source is null. */
static void print_key(const struct sg_findings *findings, const struct sg_live_key *key)
{
    char text[SG_SITE_TEXT];
    printf("\"size_class\":%" PRIu64 ",\"stream\":%" PRIu64 ",\"torch\":%s",
           sg_live_class_from(key->size_class), key->stream, key->torch ? "true" : "false");
    place("site", sg_site_book_line(&findings->book, key->site, text));
    place("phase", sg_site_book_phase(&findings->book, key->phase, text));
}

/* The groups of a live set, largest first. */
static void print_live(const struct sg_findings *findings, const char *name, const struct sg_live_set *set)
{
    printf(",\"%s\":[", name);
    for (uint32_t i = 0; i < set->rows; i++) {
        const struct sg_live_row *row = &set->row[i];
        fputs(i ? ",{" : "{", stdout);
        print_key(findings, &row->key);
        printf(",\"blocks\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"age_allocations\":%" PRIu64 "}", row->blocks,
            row->bytes, row->age);
    }
    putchar(']');
}

/* How the pages were used, and what kept those that were used in part. */
static void print_moment(const struct sg_findings *findings, const char *name, const struct sg_page_map *moment)
{
    if (!moment->event) {
        printf(",\"%s\":null", name);
        return;
    }
    printf(",\"%s\":{\"event\":%" PRIu64 ",\"reserved_bytes\":%" PRIu64 ",\"pages\":%" PRIu64
           ",\"partly_used_pages\":%" PRIu64 ",\"partly_used_idle_bytes\":%" PRIu64 ",\"cell_bytes\":%" PRIu64
           ",\"map\":\"%.*s\",\"kept_by\":[", name, moment->event, moment->reserved, moment->pages, moment->partly,
           moment->partly_idle, moment->cell_bytes, (int)moment->cells, moment->map);
    for (uint32_t i = 0; i < moment->pins; i++) {
        const struct sg_pin *pin = &moment->pin[i];
        fputs(i ? ",{" : "{", stdout);
        print_key(findings, &pin->key);
        printf(",\"blocks\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"pages\":%" PRIu64 ",\"back_bytes\":%" PRIu64 "}",
               pin->blocks, pin->bytes, pin->pages, pin->back);
    }
    fputs("]}", stdout);
}

static void print_series(const char *name, const struct sg_over_time *series)
{
    printf(",\"%s\":[", name);
    for (uint32_t i = 0; series->width && i < series->used; i++)
        printf("%s%" PRIu64, i ? "," : "", series->most[i]);
    putchar(']');
}

static const struct sg_live_set *live_at_failure(const struct sg_findings *findings,
    const struct sg_findings_device *device)
{
    static const struct sg_live_set none;
    const struct sg_summary_failure *failure = sg_findings_largest_failure(findings, device);
    return failure ? &failure->live : &none;
}

static void print_failures(const struct sg_findings *findings, uint32_t ordinal)
{
    const char *comma = "";
    char text[SG_SITE_TEXT];
    fputs(",\"failures\":[", stdout);
    for (uint32_t i = 0; i < findings->failures; i++) {
        const struct sg_summary_failure *failure = &findings->failure[i];
        if (failure->device != ordinal)
            continue;
        printf("%s{\"event\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"live_bytes\":%" PRIu64, comma, failure->event,
               failure->bytes, failure->live_bytes);
        number("short_by_bytes", failure->short_by, failure->short_by);
        place("site", sg_site_book_line(&findings->book, failure->site, text));
        place("phase", sg_site_book_phase(&findings->book, failure->phase, text));
        print_live(findings, "live", &failure->live);
        putchar('}');
        comma = ",";
    }
    putchar(']');
}

/* By calls that segalloc does not serve, when most was taken. */
static void print_outside(const struct sg_findings_device *device)
{
    const char *comma = "";
    number("peak_taken_bytes", device->peak_taken, device->peak_taken);
    fputs(",\"outside_at_peak\":{", stdout);
    for (int i = 0; i < SEGALLOC_OUTSIDE_COUNT; i++) {
        if (!device->outside.bytes[i])
            continue;
        printf("%s\"%s\":%" PRIu64, comma, sg_outside_key((enum segalloc_outside)i), device->outside.bytes[i]);
        comma = ",";
    }
    putchar('}');
}

static void print_device(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    bool imported = findings->imported;
    const struct sg_stats *stats = &device->stats;
    uint64_t asked = stats->value[SG_STAT_allocs] + stats->value[SG_STAT_passed_on];
    printf("{\"device\":%" PRIu32 ",\"model\":", device->ordinal);
    sg_tool_json_text(*device->model ? device->model : NULL);
    number("total_bytes", device->total_bytes, device->total_bytes);
    number("granularity_bytes", device->granularity, device->granularity);
    number("limit_bytes", device->limit_bytes, device->limit_bytes);
    number("largest_request_bytes", device->largest_request, device->largest_request);
    print_outside(device);
    number("peak_requested_bytes", stats->peak[SG_STAT_requested_bytes], device->known[SG_STAT_requested_bytes]);
    number("peak_allocated_bytes", stats->peak[SG_STAT_allocated_bytes], device->known[SG_STAT_allocated_bytes]);
    number("peak_reserved_bytes", stats->peak[SG_STAT_reserved_bytes], device->known[SG_STAT_reserved_bytes]);
    number("smallest_card_bytes", device->smallest_card, device->smallest_card);
    print_failures(findings, device->ordinal);
    print_live(findings, "live_at_peak", &device->at_peak);
    print_live(findings, "live_at_peak_reserved", &device->at_reserved);
    print_live(findings, "live_at_failure", live_at_failure(findings, device));
    print_moment(findings, "at_peak_reserved", &device->fullest);
    print_moment(findings, "at_failure", &device->failed);
    number("events_of_a_step", device->requested.width, device->requested.width);
    print_series("requested_over_time", &device->requested);
    print_series("reserved_over_time", &device->reserved);
    double share = asked && !imported ? (double)stats->value[SG_STAT_allocs] / (double)asked : -1;
    ratio("served_share", sg_findings_share(share, device->peak_taken, &device->outside));
    fragmentation(sg_findings_utilization(device));
    fputs(",\"statistics\":{", stdout);
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        const struct sg_stat_info *info = sg_stat_info((enum sg_stat)i);
        char peak[128];
        if (i)
            putchar(',');
        if (device->known[i])
            printf("\"%s\":%" PRIu64, info->name, stats->value[i]);
        else
            printf("\"%s\":null", info->name);
        snprintf(peak, sizeof(peak), "peak_%s", info->name);
        if (info->kind == SG_STAT_LEVEL)
            number(peak, stats->peak[i], device->known[i]);
    }
    fputs("},\"sizes\":", stdout);
    if (!device->has_classes) {
        fputs("null}", stdout);
        return;
    }
    const char *comma = "";
    putchar('[');
    for (int i = 0; i < SG_LIVE_CLASSES; i++)
        if (device->class_count[i]) {
            printf("%s{\"from_bytes\":%" PRIu64 ",\"allocs\":%" PRIu64 "}", comma, sg_live_class_from((uint32_t)i),
                   device->class_count[i]);
            comma = ",";
        }
    fputs("]}", stdout);
}

static void print_advice(void *user, const char *line)
{
    const char **comma = user;
    fputs(*comma, stdout);
    sg_tool_json_string(line);
    *comma = ",";
}

/* Cards that a rehearsal was asked about. */
static void print_cards(const struct sg_findings *findings)
{
    fputs(",\"rehearsed_cards\":[", stdout);
    for (uint32_t i = 0; i < findings->cards; i++)
        printf("%s{\"bytes\":%" PRIu64 ",\"margin_bytes\":%" PRIu64 "}", i ? "," : "", findings->card[i].bytes,
            findings->card[i].margin);
    putchar(']');
}

void sg_report_json(const struct sg_findings *findings, bool nested)
{
    char verdict[1024];
    const char *comma = "";
    fputs(nested ? "{\"file\":" : "{\"schema\":\"segalloc.report/1\",\"file\":", stdout);
    sg_tool_json_string(findings->path);
    printf(",\"source\":\"%s\",\"verdict\":", findings->trace ? "trace" : "statistics");
    sg_tool_json_string(sg_findings_verdict(findings, verdict, sizeof(verdict)));
    bool complete = !findings->begin_text && !findings->end_text && !findings->dropped;
    printf(",\"complete\":%s,\"begin_text\":", complete ? "true" : "false");
    sg_tool_json_text(findings->begin_text);
    fputs(",\"end_text\":", stdout);
    sg_tool_json_text(findings->end_text);
    number("rank", (uint64_t)findings->rank, findings->rank >= 0);
    number("events", findings->events, findings->trace);
    number("dropped", findings->dropped, findings->trace);
    printf(",\"untracked_order\":%d,\"untracked_by\":", *findings->untracked_by != '\0');
    if (*findings->untracked_by)
        sg_tool_json_string(findings->untracked_by);
    else
        fputs("null", stdout);
    printf(",\"allocs\":%" PRIu64 ",\"frees\":%" PRIu64 ",\"passed_on\":%" PRIu64 ",\"ooms\":%" PRIu64
           ",\"refused\":%" PRIu64 ",\"survived\":%s",
        findings->allocs, findings->frees, findings->passed_on, findings->ooms, findings->refused,
        findings->survived ? "true" : "false");
    ratio("served_share", findings->served_share);
    number("peak_requested_bytes", findings->peak_requested, true);
    number("peak_allocated_bytes", findings->peak_allocated, findings->knows_reserved);
    number("peak_pending_bytes", findings->peak_pending, findings->knows_reserved);
    number("peak_reserved_bytes", findings->peak_reserved, findings->knows_reserved);
    number("smallest_card_bytes", findings->smallest_card, findings->smallest_card);
    print_cards(findings);
    printf(",\"at_least\":%s", findings->at_least ? "true" : "false");
    fragmentation(findings->utilization);
    printf(",\"duration_ns\":%" PRIu64 ",\"pid\":%" PRIu64 ",\"conf\":", findings->duration_ns, findings->pid);
    sg_tool_json_string(findings->conf);
    fputs(",\"command\":", stdout);
    sg_tool_json_string(findings->command);
    fputs(",\"devices\":[", stdout);
    for (uint32_t i = 0; i < findings->devices; i++) {
        if (i)
            putchar(',');
        print_device(findings, &findings->device[i]);
    }
    fputs("],\"advice\":[", stdout);
    sg_findings_advice(findings, print_advice, &comma);
    fputs("]}", stdout);
}
