#include <inttypes.h>
#include <stdio.h>

#include "report.h"
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

/* The groups of a live set, largest first. What has no source is null: a size class is all that this trace tells. */
static void print_live(const char *name, const struct sg_live_set *set)
{
    bool shown[SG_SIZE_CLASSES] = {false};
    const char *comma = "";
    printf(",\"%s\":[", name);
    for (;;) {
        int next = -1;
        for (int i = 0; i < SG_SIZE_CLASSES; i++)
            if (!shown[i] && set->class[i].blocks && (next < 0 || set->class[i].bytes > set->class[next].bytes))
                next = i;
        if (next < 0)
            break;
        shown[next] = true;
        printf("%s{\"size_class\":%" PRIu64 ",\"site\":null,\"blocks\":%" PRIu64 ",\"bytes\":%" PRIu64
               ",\"age_allocations\":%" PRIu64 "}", comma, next ? UINT64_C(1) << (next - 1) : 0, set->class[next].blocks,
               set->class[next].bytes, sg_live_age(set, (unsigned)next));
        comma = ",";
    }
    putchar(']');
}

static void print_failures(const struct sg_findings *findings, uint32_t ordinal)
{
    const char *comma = "";
    fputs(",\"failures\":[", stdout);
    for (uint32_t i = 0; i < findings->failures; i++) {
        const struct sg_summary_failure *failure = &findings->failure[i];
        if (failure->device != ordinal)
            continue;
        printf("%s{\"event\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"live_bytes\":%" PRIu64, comma, failure->event,
               failure->bytes, failure->live_bytes);
        number("short_by_bytes", failure->short_by, failure->short_by);
        fputs(",\"site\":null,\"phase\":null}", stdout);
        comma = ",";
    }
    putchar(']');
}

static void print_device(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    bool imported = findings->imported;
    const struct sg_stats *stats = &device->stats;
    uint64_t asked = stats->value[SG_STAT_allocs] + stats->value[SG_STAT_passed_on];
    printf("{\"device\":%" PRIu32, device->ordinal);
    number("total_bytes", device->total_bytes, device->total_bytes);
    number("granularity_bytes", device->granularity, device->granularity);
    number("limit_bytes", device->limit_bytes, device->limit_bytes);
    number("largest_request_bytes", device->largest_request, device->largest_request);
    number("peak_requested_bytes", stats->peak[SG_STAT_requested_bytes], device->known[SG_STAT_requested_bytes]);
    number("peak_allocated_bytes", stats->peak[SG_STAT_allocated_bytes], device->known[SG_STAT_allocated_bytes]);
    number("peak_reserved_bytes", stats->peak[SG_STAT_reserved_bytes], device->known[SG_STAT_reserved_bytes]);
    number("smallest_card_bytes", device->smallest_card, device->smallest_card);
    print_failures(findings, device->ordinal);
    print_live("live_at_peak", &device->at_peak);
    print_live("live_at_failure", &device->at_failure);
    ratio("served_share", asked && !imported ? (double)stats->value[SG_STAT_allocs] / (double)asked : -1);
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
    for (int i = 0; i < SG_SIZE_CLASSES; i++)
        if (device->class_count[i]) {
            printf("%s{\"from_bytes\":%" PRIu64 ",\"allocs\":%" PRIu64 "}", comma, i ? UINT64_C(1) << (i - 1) : 0,
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
    printf(",\"allocs\":%" PRIu64 ",\"frees\":%" PRIu64 ",\"passed_on\":%" PRIu64 ",\"ooms\":%" PRIu64,
           findings->allocs, findings->frees, findings->passed_on, findings->ooms);
    ratio("served_share", findings->served_share);
    number("peak_requested_bytes", findings->peak_requested, true);
    number("peak_allocated_bytes", findings->peak_allocated, findings->knows_reserved);
    number("peak_pending_bytes", findings->peak_pending, findings->knows_reserved);
    number("peak_reserved_bytes", findings->peak_reserved, findings->knows_reserved);
    number("smallest_card_bytes", findings->smallest_card, findings->smallest_card);
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
