#include "report/report.h"

#include <stdio.h>

#include "analysis/role_rows.h"
#include "json.h"

static void set_fragmentation(json_t *object, double utilization)
{
    sg_json_set_ratio(object, "utilization", utilization);
    sg_json_set_ratio(object, "fragmentation", utilization < 0 ? -1 : utilization < 1 ? 1 - utilization : 0);
}

static void set_place(json_t *object, const char *key, const char *text)
{
    sg_json_set_text(object, key, *text ? text : NULL);
}

/* Members that the blocks of a group have in common. One without a source is null. */
static json_t *report_json_group(const struct sg_findings *findings, const struct sg_live_key *key)
{
    char text[SG_SITE_TEXT];
    json_t *group = sg_json_object(NULL);
    SG_JSON_NUMBERS(group, {"size_class", sg_live_class_from(key->size_class)}, {"stream", key->stream});
    sg_json_set_flag(group, "torch", key->torch);
    set_place(group, "site", sg_site_book_line(&findings->book, key->site, text));
    set_place(group, "phase", sg_site_book_phase(&findings->book, key->phase, text));
    return group;
}

/* The groups of a live set, largest first. */
static json_t *json_live(const struct sg_findings *findings, const struct sg_live_set *set)
{
    json_t *groups = sg_json_array();
    for (uint32_t i = 0; i < set->rows; i++) {
        const struct sg_live_row *row = &set->row[i];
        json_t *group = report_json_group(findings, &row->key);
        SG_JSON_NUMBERS(group, {"blocks", row->blocks}, {"bytes", row->bytes}, {"age_allocations", row->age});
        sg_json_add(groups, group);
    }
    return groups;
}

/* How the pages were used, and what kept those that were used in part; null where that is not known. */
static json_t *json_moment(const struct sg_findings *findings, const struct sg_page_map *moment)
{
    if (!moment->event)
        return json_null();
    json_t *result = sg_json_object(NULL), *kept_by = sg_json_array();
    SG_JSON_NUMBERS(result, {"event", moment->event}, {"reserved_bytes", moment->reserved}, {"pages", moment->pages},
        {"partly_used_pages", moment->partly}, {"partly_used_idle_bytes", moment->partly_idle},
        {"cell_bytes", moment->cell_bytes});
    sg_json_set(result, "map", json_stringn(moment->map, moment->cells));
    for (uint32_t i = 0; i < moment->pins; i++) {
        const struct sg_pin *pin = &moment->pin[i];
        json_t *group = report_json_group(findings, &pin->key);
        SG_JSON_NUMBERS(group, {"blocks", pin->blocks}, {"bytes", pin->bytes}, {"pages", pin->pages},
            {"back_bytes", pin->back});
        sg_json_add(kept_by, group);
    }
    sg_json_set(result, "kept_by", kept_by);
    return result;
}

static json_t *json_series(const struct sg_steps *series)
{
    json_t *levels = sg_json_array();
    for (uint32_t i = 0; series->width && i < series->used; i++)
        sg_json_add(levels, sg_json_number(series->most[i]));
    return levels;
}

static const struct sg_live_set *live_at_failure(const struct sg_findings *findings,
    const struct sg_findings_device *device)
{
    static const struct sg_live_set none;
    const struct sg_summary_failure *failure = sg_findings_largest_failure(findings, device);
    return failure ? &failure->live : &none;
}

static json_t *report_json_failures(const struct sg_findings *findings, uint32_t ordinal)
{
    char text[SG_SITE_TEXT];
    json_t *failures = sg_json_array();
    for (uint32_t i = 0; i < findings->failures; i++) {
        const struct sg_summary_failure *failure = &findings->failure[i];
        if (failure->device != ordinal)
            continue;
        json_t *result = sg_json_object(NULL);
        SG_JSON_NUMBERS(result, {"event", failure->event}, {"bytes", failure->bytes},
            {"live_bytes", failure->live_bytes});
        sg_json_set_known(result, "short_by_bytes", failure->short_by, failure->short_by);
        if (failure->by)
            sg_json_set_text(result, "by", sg_outside_key(failure->by));
        set_place(result, "site", sg_site_book_line(&findings->book, failure->site, text));
        set_place(result, "phase", sg_site_book_phase(&findings->book, failure->phase, text));
        sg_json_set(result, "live", json_live(findings, &failure->live));
        sg_json_set(result, "roles", sg_role_rows(&findings->failure_roles[i]));
        sg_json_add(failures, result);
    }
    return failures;
}

/* Memory of calls that segalloc does not serve, when most was taken. */
static void report_set_outside(json_t *object, const struct sg_findings_device *device)
{
    json_t *outside = sg_json_object(NULL);
    sg_json_set_known(object, "peak_taken_bytes", device->peak_taken, device->peak_taken);
    for (int i = 0; i < SEGALLOC_OUTSIDE_COUNT; i++)
        if (device->outside.bytes[i])
            sg_json_set(outside, sg_outside_key((enum segalloc_outside)i), sg_json_number(device->outside.bytes[i]));
    sg_json_set(object, "outside_at_peak", outside);
}

static json_t *json_statistics(const struct sg_findings_device *device)
{
    json_t *statistics = sg_json_object(NULL);
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        const struct sg_stat_info *info = sg_stat_info((enum sg_stat)i);
        char peak[128];
        snprintf(peak, sizeof peak, "peak_%s", info->name);
        sg_json_set_known(statistics, info->name, device->stats.value[i], device->known[i]);
        if (info->kind == SG_STAT_LEVEL)
            sg_json_set_known(statistics, peak, device->stats.peak[i], device->known[i]);
    }
    return statistics;
}

static json_t *json_sizes(const struct sg_findings_device *device)
{
    if (!device->has_classes)
        return json_null();
    json_t *sizes = sg_json_array();
    for (int i = 0; i < SG_LIVE_CLASSES; i++)
        if (device->class_count[i]) {
            json_t *size = sg_json_object(NULL);
            SG_JSON_NUMBERS(size, {"from_bytes", sg_live_class_from((uint32_t)i)}, {"allocs", device->class_count[i]});
            sg_json_add(sizes, size);
        }
    return sizes;
}

static json_t *report_json_device(const struct sg_findings *findings, const struct sg_findings_device *device)
{
    const struct sg_stats *stats = &device->stats;
    uint64_t asked = stats->value[SG_STAT_allocs] + stats->value[SG_STAT_passed_on];
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"device", device->ordinal});
    sg_json_set_text(result, "model", *device->model ? device->model : NULL);
    sg_json_set_known(result, "total_bytes", device->total_bytes, device->total_bytes);
    sg_json_set_known(result, "granularity_bytes", device->granularity, device->granularity);
    sg_json_set_known(result, "limit_bytes", device->limit_bytes, device->limit_bytes);
    sg_json_set_known(result, "largest_request_bytes", device->largest_request, device->largest_request);
    report_set_outside(result, device);
    sg_json_set_known(result, "peak_requested_bytes", stats->peak[SG_STAT_requested_bytes],
        device->known[SG_STAT_requested_bytes]);
    sg_json_set_known(result, "peak_allocated_bytes", stats->peak[SG_STAT_allocated_bytes],
        device->known[SG_STAT_allocated_bytes]);
    sg_json_set_known(result, "peak_reserved_bytes", stats->peak[SG_STAT_reserved_bytes],
        device->known[SG_STAT_reserved_bytes]);
    sg_json_set_known(result, "smallest_card_bytes", device->smallest_card, device->smallest_card);
    sg_json_set(result, "failures", report_json_failures(findings, device->ordinal));
    sg_json_set(result, "roles", sg_role_rows(&device->roles));
    sg_json_set(result, "live_at_peak", json_live(findings, &device->at_peak));
    sg_json_set(result, "live_at_peak_reserved", json_live(findings, &device->at_reserved));
    sg_json_set(result, "live_at_failure", json_live(findings, live_at_failure(findings, device)));
    sg_json_set(result, "at_peak_reserved", json_moment(findings, &device->fullest));
    sg_json_set(result, "at_failure", json_moment(findings, &device->failed));
    sg_json_set_known(result, "events_of_a_step", device->requested.width, device->requested.width);
    sg_json_set(result, "requested_over_time", json_series(&device->requested));
    sg_json_set(result, "reserved_over_time", json_series(&device->reserved));
    double share = asked && !findings->imported ? (double)stats->value[SG_STAT_allocs] / (double)asked : -1;
    sg_json_set_ratio(result, "served_share", sg_findings_share(share, device->peak_taken, &device->outside));
    set_fragmentation(result, sg_findings_utilization(device));
    sg_json_set(result, "statistics", json_statistics(device));
    sg_json_set(result, "sizes", json_sizes(device));
    return result;
}

static void report_add_advice(void *advice, const char *line)
{
    sg_json_add(advice, sg_json_text(line));
}

/* Cards that a rehearsal was asked about. */
static json_t *report_json_cards(const struct sg_findings *findings)
{
    json_t *cards = sg_json_array();
    for (uint32_t i = 0; i < findings->cards; i++) {
        json_t *card = sg_json_object(NULL);
        SG_JSON_NUMBERS(card, {"bytes", findings->card[i].bytes}, {"margin_bytes", findings->card[i].margin});
        sg_json_add(cards, card);
    }
    return cards;
}

/* Levels and shares of all devices together. */
static void set_totals(json_t *result, const struct sg_findings *findings)
{
    SG_JSON_NUMBERS(result, {"allocs", findings->allocs}, {"frees", findings->frees},
        {"passed_on", findings->passed_on}, {"ooms", findings->ooms}, {"refused", findings->refused});
    sg_json_set_flag(result, "survived", findings->survived);
    sg_json_set_ratio(result, "served_share", findings->served_share);
    SG_JSON_NUMBERS(result, {"peak_requested_bytes", findings->peak_requested});
    sg_json_set_known(result, "peak_allocated_bytes", findings->peak_allocated, findings->knows_reserved);
    sg_json_set_known(result, "peak_pending_bytes", findings->peak_pending, findings->knows_reserved);
    sg_json_set_known(result, "peak_reserved_bytes", findings->peak_reserved, findings->knows_reserved);
    sg_json_set_known(result, "smallest_card_bytes", findings->smallest_card, findings->smallest_card);
    sg_json_set(result, "rehearsed_cards", report_json_cards(findings));
    sg_json_set(result, "check", sg_report_checked_json(findings));
    sg_json_set_flag(result, "at_least", findings->at_least);
    set_fragmentation(result, findings->utilization);
}

/* Each tag of memory that the trace has. */
static json_t *report_json_tags(const struct sg_tag_book *book)
{
    json_t *tags = sg_json_array();
    for (int i = 1; i < SG_TAG_BOOK_TAGS; i++) {
        const struct sg_tag_row *row = &book->row[i];
        if (!*row->name)
            continue;
        json_t *tag = sg_json_object(NULL);
        sg_json_set_text(tag, "tag", row->name);
        sg_json_set(tag, "backup", json_boolean(!row->discard));
        SG_JSON_NUMBERS(tag, {"peak_requested_bytes", row->peak_requested}, {"peak_reserved_bytes", row->peak_reserved},
            {"pauses", row->pauses}, {"resumes", row->resumes}, {"backup_bytes_peak", row->peak_saved});
        sg_json_add(tags, tag);
    }
    return tags;
}

/* Each line of code that keeps more with each step. */
static json_t *report_json_growth(const struct sg_findings *findings)
{
    json_t *growth = sg_json_array();
    char place[SG_SITE_TEXT];
    for (uint32_t i = 0; i < findings->growth.rows; i++) {
        const struct sg_growth_row *row = &findings->growth.row[i];
        json_t *line = sg_json_object(NULL);
        uint64_t ends = sg_findings_growth_ends(findings, row->device);
        set_place(line, "site", sg_site_book_line(&findings->book, row->site, place));
        set_place(line, "called_from", sg_site_book_caller(&findings->book, row->site, place));
        SG_JSON_NUMBERS(line, {"device", row->device}, {"bytes_a_step", row->bytes_a_step},
            {"since_step", row->since_step}, {"grown_bytes", row->grown});
        sg_json_set(line, "out_of_memory_at_step", ends ? json_integer((json_int_t)ends) : json_null());
        sg_json_add(growth, line);
    }
    return growth;
}

json_t *sg_report_json(const struct sg_findings *findings, bool nested)
{
    char verdict[1024];
    json_t *result = sg_json_object(nested ? NULL : "segalloc.report/1"), *devices = sg_json_array(),
           *advice = sg_json_array();
    sg_json_set_text(result, "file", findings->path);
    sg_json_set_text(result, "source", findings->trace ? "trace" : "statistics");
    sg_json_set_text(result, "verdict", sg_findings_verdict(findings, verdict, sizeof verdict));
    sg_json_set_flag(result, "complete", !findings->begin_text && !findings->end_text && !findings->dropped);
    sg_json_set_text(result, "begin_text", findings->begin_text);
    sg_json_set_text(result, "end_text", findings->end_text);
    sg_json_set_known(result, "rank", (uint64_t)findings->rank, findings->rank >= 0);
    sg_json_set_known(result, "events", findings->events, findings->trace);
    sg_json_set_known(result, "dropped", findings->dropped, findings->trace);
    SG_JSON_NUMBERS(result, {"untracked_order", *findings->untracked_by != '\0'});
    set_place(result, "untracked_by", findings->untracked_by);
    set_totals(result, findings);
    SG_JSON_NUMBERS(result, {"duration_ns", findings->duration_ns}, {"pid", findings->pid});
    sg_json_set_text(result, "conf", findings->conf);
    sg_json_set_text(result, "command", findings->command);
    for (uint32_t i = 0; i < findings->devices; i++)
        sg_json_add(devices, report_json_device(findings, &findings->device[i]));
    sg_json_set(result, "devices", devices);
    sg_json_set(result, "tags", report_json_tags(&findings->tags));
    sg_json_set(result, "growth", report_json_growth(findings));
    sg_findings_advice(findings, report_add_advice, advice);
    sg_json_set(result, "advice", advice);
    return result;
}
