#include "report/findings.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "size.h"
#include "reader/stats_read.h"
#include "analysis/symbols.h"
#include "tool.h"

double sg_findings_utilization(const struct sg_findings_device *device)
{
    uint64_t reserved = device->stats.peak[SG_STAT_reserved_bytes];
    return device->known[SG_STAT_reserved_bytes] && device->known[SG_STAT_allocated_bytes] && reserved
               ? (double)device->stats.peak[SG_STAT_allocated_bytes] / (double)reserved : -1;
}

const struct sg_summary_failure *sg_findings_largest_failure(const struct sg_findings *findings,
    const struct sg_findings_device *device)
{
    const struct sg_summary_failure *largest = NULL;
    for (uint32_t i = 0; i < findings->failures; i++) {
        const struct sg_summary_failure *failure = &findings->failure[i];
        if (failure->device == device->ordinal && (!largest || failure->bytes > largest->bytes))
            largest = failure;
    }
    return largest;
}

/* Bytes that the peak of reserved memory lies above the peak of memory in use. */
static uint64_t stranded_bytes(const struct sg_findings_device *device)
{
    const uint64_t *peak = device->stats.peak;
    uint64_t used = peak[SG_STAT_active_bytes] > peak[SG_STAT_allocated_bytes] ? peak[SG_STAT_active_bytes]
                                                                               : peak[SG_STAT_allocated_bytes];
    return peak[SG_STAT_reserved_bytes] > used ? peak[SG_STAT_reserved_bytes] - used : 0;
}

double sg_findings_share(double of_allocations, uint64_t taken, const struct sg_outside *outside)
{
    uint64_t others = sg_outside_stays(outside) - outside->bytes[SEGALLOC_OUTSIDE_OTHER];
    if (others == 0 || taken == 0)
        return of_allocations;
    return (double)(taken > sg_outside_stays(outside) ? taken - sg_outside_stays(outside) : 0) /
           (double)(taken - outside->bytes[SEGALLOC_OUTSIDE_OTHER]);
}

/* Calls that segalloc does not serve, and that were refused: a replay cannot know of them. */
static void count_refused(struct sg_findings *findings)
{
    for (uint32_t i = 0; i < findings->failures; i++) {
        const struct sg_summary_failure *failure = &findings->failure[i];
        for (uint32_t j = 0; j < findings->devices; j++) {
            uint64_t *smallest = &findings->device[j].smallest_card;
            if (findings->device[j].ordinal == failure->device && *smallest && failure->needed > *smallest)
                *smallest = failure->needed;
        }
    }
}

static void findings_add_up(struct sg_findings *findings)
{
    uint32_t known = 0;
    struct sg_outside outside = {{0}};
    findings->knows_reserved = findings->devices > 0;
    count_refused(findings);
    for (uint32_t i = 0; i < findings->devices; i++) {
        const struct sg_findings_device *device = &findings->device[i];
        const struct sg_stats *stats = &device->stats;
        findings->allocs += stats->value[SG_STAT_allocs];
        findings->alloc_bytes += device->alloc_bytes;
        findings->frees += stats->value[SG_STAT_frees];
        findings->passed_on += stats->value[SG_STAT_passed_on];
        findings->passed_on_bytes += stats->value[SG_STAT_passed_on_bytes];
        findings->ooms += stats->value[SG_STAT_ooms];
        findings->refused += stats->value[SG_STAT_refused];
        findings->peak_requested += stats->peak[SG_STAT_requested_bytes];
        findings->peak_allocated += stats->peak[SG_STAT_allocated_bytes];
        findings->peak_pending += stats->peak[SG_STAT_pending_bytes];
        findings->peak_reserved += stats->peak[SG_STAT_reserved_bytes];
        findings->peak_stranded += stranded_bytes(device);
        findings->peak_taken += device->peak_taken;
        for (int j = 0; j < SEGALLOC_OUTSIDE_COUNT; j++)
            outside.bytes[j] += device->outside.bytes[j];
        findings->peak_outside += device->peak_outside;
        if (device->known[SG_STAT_reserved_bytes])
            findings->device[i].stats.peak[SG_STAT_stranded_bytes] = stranded_bytes(device);
        findings->stranded += stats->value[SG_STAT_stranded_bytes];
        findings->knows_reserved &= device->known[SG_STAT_reserved_bytes];
        if (device->failed_largest > findings->failed_largest)
            findings->failed_largest = device->failed_largest;
        if (device->largest_request > findings->largest_request)
            findings->largest_request = device->largest_request;
        if (device->smallest_card > findings->smallest_card)
            findings->smallest_card = device->smallest_card;
        known += device->smallest_card > 0;
    }
    if (known < findings->devices)
        findings->smallest_card = 0;
    uint64_t asked = findings->allocs + findings->passed_on;
    findings->served_share = asked && !findings->imported ? (double)findings->allocs / (double)asked : -1;
    findings->served_share = sg_findings_share(findings->served_share, findings->peak_taken, &outside);
    findings->utilization = findings->knows_reserved && findings->peak_reserved && findings->peak_allocated
                                ? (double)findings->peak_allocated / (double)findings->peak_reserved : -1;
}

/* A figure that the events themselves give: at least as good as the last snapshot's. */
static void from_events(struct sg_findings_device *device, enum sg_stat stat, uint64_t value, uint64_t peak)
{
    if (!device->known[stat] || sg_stat_info(stat)->kind == SG_STAT_COUNTER)
        device->stats.value[stat] = value > device->stats.value[stat] ? value : device->stats.value[stat];
    if (peak > device->stats.peak[stat])
        device->stats.peak[stat] = peak;
    device->known[stat] = true;
}

/* False: no host memory. */
static bool from_summary(struct sg_findings_device *to, const struct sg_summary_device *from, bool imported)
{
    to->granularity = from->granularity;
    memcpy(to->model, from->model, sizeof to->model);
    to->has_uuid = from->has_uuid;
    memcpy(to->uuid, from->uuid, sizeof to->uuid);
    to->total_bytes = from->total_bytes;
    to->limit_bytes = from->limit_bytes;
    to->largest_request = from->largest_request;
    to->failed_largest = from->failed_largest;
    to->stats_age = from->stats_age;
    to->has_classes = true;
    memcpy(to->class_count, from->class_count, sizeof(to->class_count));
    sg_series_steps(&from->over_time, /* reserved */ false, &to->requested);
    to->outside = from->outside_at_peak;
    to->peak_taken = from->peak_taken;
    to->peak_own = from->peak_own;
    to->peak_request = from->peak_request;
    to->peak_outside = from->peak_outside;
    to->lags = from->lags;
    to->alloc_bytes = from->alloc_bytes;
    if (from->has_stats) {
        to->stats = from->stats;
        for (int i = 0; i < SG_STAT_COUNT; i++) /* another allocator's has some of them; ours leaves out what is 0 */
            to->known[i] = !imported || from->has_stat[i];
    }
    from_events(to, SG_STAT_requested_bytes, from->live_bytes, from->peak_live_bytes);
    from_events(to, SG_STAT_allocations, from->live_blocks, from->peak_live_blocks);
    from_events(to, SG_STAT_allocs, from->allocs, 0);
    from_events(to, SG_STAT_frees, from->frees, 0);
    from_events(to, SG_STAT_refused, from->failures + from->made_good, 0);
    from_events(to, SG_STAT_ooms, from->failures, 0);
    if (!imported) {
        from_events(to, SG_STAT_passed_on, from->passed_on, 0);
        from_events(to, SG_STAT_passed_on_bytes, from->passed_on_bytes, 0);
    }
    return !from->live.group || sg_live_set_take(&to->at_peak, &from->live, /* kept */ true, SG_LIVE_ROWS);
}

static int take_devices(struct sg_findings *findings, const struct sg_summary *summary)
{
    findings->device = calloc(summary->devices + 1, sizeof(*findings->device));
    if (!findings->device)
        return -ENOMEM;
    for (uint32_t i = 0; i < summary->devices; i++)
        if (summary->device[i].used) {
            struct sg_findings_device *device = &findings->device[findings->devices++];
            device->ordinal = i;
            if (!from_summary(device, &summary->device[i], findings->imported))
                return -ENOMEM;
        }
    return 0;
}

/* A trace that is being written has no end yet, and what was read of its last block may be older than the next one. */
static void note_running(struct sg_findings *findings)
{
    if (!findings->command || !sg_tool_runs(findings->pid, findings->command) ||
        (findings->damaged && !strstr(findings->end_room, "not closed is followed")))
        return;
    findings->running = true;
    findings->damaged = false;
    snprintf(findings->end_room, sizeof findings->end_room, "the program is still running");
}

/* Looks for lines that keep more with each step, in a trace that has phases. A pipe is read once, so nothing is known of it. */
static void findings_read_growth(struct sg_findings *findings, struct sg_trace_reader *reader)
{
    if (findings->book.phases && sg_growth_read(reader, &findings->growth))
        findings->growth = (struct sg_growth){0};
}

/* Finds the roles of the memory at peaks and failures, where PyTorch asks for each tensor. */
static void findings_read_roles(struct sg_findings *findings, struct sg_trace_reader *reader)
{
    struct sg_roles_moment *moment = calloc(findings->devices + findings->failures + 1, sizeof *moment);
    uint32_t moments = 0;
    if (!moment || !findings->torch || findings->book.sites < 2) {
        free(moment);
        return;
    }
    for (uint32_t i = 0; i < findings->devices; i++)
        moment[moments++] =
            (struct sg_roles_moment){findings->device[i].ordinal, findings->device[i].peak_request, {{0}}};
    for (uint32_t i = 0; i < findings->failures; i++)
        moment[moments++] = (struct sg_roles_moment){findings->failure[i].device, findings->failure[i].event, {{0}}};
    if (sg_roles_read(reader, moment, moments) == 0) {
        for (uint32_t i = 0; i < findings->devices; i++)
            findings->device[i].roles = moment[i].roles;
        for (uint32_t i = 0; i < findings->failures; i++)
            findings->failure_roles[i] = moment[findings->devices + i].roles;
    }
    free(moment);
}

/* Room is what the device has beyond the most that was taken there, by any call. Idle pages are no loss: what grows finds them. */
uint64_t sg_findings_growth_ends(const struct sg_findings *findings, uint32_t ordinal)
{
    for (uint32_t i = 0; i < findings->devices; i++) {
        const struct sg_findings_device *device = &findings->device[i];
        uint64_t size = device->limit_bytes ? device->limit_bytes : device->total_bytes;
        if (device->ordinal == ordinal && size)
            return sg_growth_ends(&findings->growth, ordinal, size > device->peak_taken ? size - device->peak_taken : 0);
    }
    return 0;
}

static int findings_read_trace(struct sg_findings *findings, bool cards, char *error)
{
    struct sg_trace_reader *reader;
    struct sg_summary summary;
    int status = sg_trace_open(findings->path, &reader, error);
    if (status)
        return status;
    status = sg_summary_read(&summary, reader, false);
    const struct sg_trace_info *info = sg_trace_info(reader);
    findings->imported = info->header.imported;
    if (!status)
        status = take_devices(findings, &summary);
    findings->conf = strdup(info->conf);
    findings->command = strdup(info->command);
    if (status) {
        snprintf(error, SG_FINDINGS_ERROR, "%s", strerror(-status));
    } else if (sg_trace_error(reader)) {
        snprintf(error, SG_FINDINGS_ERROR, "%s", sg_trace_error(reader));
        status = -EINVAL;
    } else if (!summary.events) {
        snprintf(error, SG_FINDINGS_ERROR, "the trace has no events%s%s", info->end_text ? ": " : "",
                 info->end_text ? info->end_text : "");
        status = -ENODATA;
    }
    findings->trace = true;
    findings->requests = summary.requests;
    findings->torch = summary.torch;
    findings->cards = summary.cards;
    for (uint32_t i = 0; summary.cards && i < findings->devices; i++) /* it ran on a card without end */
        findings->device[i].total_bytes = summary.card[summary.cards - 1].bytes;
    memcpy(findings->card, summary.card, sizeof findings->card);
    findings->limited = summary.limited;
    findings->failures = (uint32_t)(summary.failures < SG_FAILURES_KEPT ? summary.failures : SG_FAILURES_KEPT);
    memcpy(findings->failure, summary.failure, sizeof findings->failure);
    memset(summary.failure, 0, sizeof summary.failure); /* with what was alive at each */
    findings->pid = info->header.pid;
    findings->duration_ns = summary.events ? summary.last_ns - summary.first_ns : 0;
    findings->events = summary.events;
    findings->dropped = info->dropped;
    findings->unmatched_frees = summary.unmatched_frees;
    findings->repeated = summary.repeated;
    findings->search = summary.search;
    findings->retried = summary.retried;
    findings->checked = summary.checked;
    findings->tags = summary.tags;
    findings->survived = summary.failures && summary.last_served > summary.last_failure;
    memcpy(findings->untracked_by, summary.untracked_by, sizeof findings->untracked_by);
    if (info->end_text) {
        snprintf(findings->end_room, sizeof(findings->end_room), "%s", info->end_text);
        findings->end_text = findings->end_room;
        findings->damaged = info->end == SG_TRACE_DAMAGED;
        note_running(findings);
    }
    if (info->begin_text) {
        snprintf(findings->begin_room, sizeof(findings->begin_room), "%s", info->begin_text);
        findings->begin_text = findings->begin_room;
    }
    findings->at_least = info->begin_text || info->end_text || summary.failures > 0;
    findings->book = summary.dictionary.book;
    findings->book.resolve = sg_symbols_line;
    summary.dictionary.book = (struct sg_site_book){0};
    sg_summary_free(&summary);
    if (!status && !findings->damaged) {
        findings_read_growth(findings, reader);
        findings_read_roles(findings, reader);
        sg_findings_play(findings, reader, cards);
    }
    sg_trace_close(reader);
    return status;
}

static int read_statistics(struct sg_findings *findings, char *error)
{
    struct sg_stats_file file;
    int status = sg_stats_file_read(findings->path, &file, error);
    if (status)
        return status;
    findings->conf = strdup(file.conf);
    findings->command = strdup(file.command);
    findings->pid = file.pid;
    snprintf(findings->untracked_by, sizeof findings->untracked_by, "%s", file.untracked_by ? file.untracked_by : "");
    findings->duration_ns =
        file.end_realtime_ns > file.start_realtime_ns ? file.end_realtime_ns - file.start_realtime_ns : 0;
    findings->device = calloc(file.count + 1, sizeof(*findings->device));
    for (uint32_t i = 0; findings->device && i < file.count; i++) {
        struct sg_findings_device *device = &findings->device[findings->devices++];
        device->ordinal = file.devices[i].device;
        device->stats = file.devices[i].stats;
        memset(device->known, true, sizeof(device->known));
        memcpy(device->model, file.devices[i].model, sizeof device->model);
        device->granularity = file.devices[i].granularity;
        device->total_bytes = file.devices[i].total_bytes;
        device->limit_bytes = file.devices[i].limit_bytes;
        device->smallest_card = device->stats.peak[SG_STAT_allocated_bytes];
    }
    for (uint32_t i = 0; i < file.tag_count && i + 1 < SG_TAG_BOOK_TAGS; i++) {
        const struct sg_stats_tag *tag = &file.tags[i];
        struct sg_tag_row *row = &findings->tags.row[i + 1];
        snprintf(row->name, sizeof row->name, "%s", tag->name);
        row->discard = !tag->backup;
        row->peak_requested = tag->peak_requested;
        row->peak_reserved = tag->peak_reserved;
        row->peak_saved = tag->peak_saved;
        row->pauses = tag->pauses;
        row->resumes = tag->resumes;
    }
    findings->at_least = true; /* without events nobody knows what a smaller card would take */
    sg_stats_file_free(&file);
    findings->running = findings->command && strncmp(findings->path, "/dev/shm/", 9) == 0 &&
                        sg_tool_runs(findings->pid, findings->command);
    return findings->device ? 0 : -ENOMEM;
}

/* The part of a pattern at `at`: what it stands for ('r' for digits, 'p' and others for anything, 0 for itself), and
   its length. */
static char findings_part_of(const char *at, const char *end, size_t *ret_length)
{
    bool special = *at == '%' && at + 1 < end;
    *ret_length = special ? 2 : 1;
    return special && at[1] != '%' ? at[1] : 0;
}

/* True if `pattern` (of `end - pattern` characters) can have become `name`; *rank is the number in the place of %r. A
   part that stands for anything is tried again with one character more. Only the last one so far needs that: characters
   that an earlier one could take instead, it takes too. */
static bool made_from(const char *pattern, const char *end, const char *name, int64_t *rank)
{
    const char *after_any = NULL, *any_from = NULL; /* the pattern behind that part, and where in the name it goes on */
    while (pattern < end || *name) {
        size_t length = 0;
        char part = pattern < end ? findings_part_of(pattern, end, &length) : 0, *after;
        if (part && part != 'r') {
            after_any = pattern += length;
            any_from = name;
            continue;
        }
        if (part == 'r' && isdigit((unsigned char)*name)) {
            *rank = strtoll(name, &after, 10);
            name = after;
        } else if (!part && pattern < end && *name && *name == *pattern) {
            name++;
        } else if (any_from && *any_from) {
            name = ++any_from;
            length = 0;
            pattern = after_any;
        } else {
            return false;
        }
        pattern += length;
    }
    return true;
}

/* A trace that was asked for as trace:FOLDER/NAME with %r in it has its rank in its name. */
static int64_t rank_of(const char *conf, const char *path)
{
    static const char key[] = "trace:";
    const char *at = strstr(conf, key), *name = strrchr(path, '/');
    if (!at)
        return -1;
    at += sizeof(key) - 1;
    const char *end = at + strcspn(at, ",");
    for (const char *c = at; c < end; c++)
        if (*c == '/')
            at = c + 1;
    int64_t rank = -1;
    return made_from(at, end, name ? name + 1 : path, &rank) ? rank : -1;
}

int sg_findings_read(const char *path, bool cards, struct sg_findings *ret, char *error)
{
    struct sg_findings findings = {.path = path};
    int status = sg_stats_file_detect(path) ? read_statistics(&findings, error)
                                            : findings_read_trace(&findings, cards, error);
    if (!status && (!findings.conf || !findings.command)) {
        snprintf(error, SG_FINDINGS_ERROR, "out of memory");
        status = -ENOMEM;
    }
    if (!status) {
        findings.rank = rank_of(findings.conf, path);
        findings_add_up(&findings);
    }
    if (!status && !findings.trace && !findings.allocs && !findings.passed_on && !findings.ooms) {
        snprintf(error, SG_FINDINGS_ERROR, "the program asked for no device memory while segalloc was in it");
        status = -ENODATA;
    }
    if (status) {
        sg_findings_free(&findings);
        return status;
    }
    *ret = findings;
    if (findings.end_text)
        ret->end_text = ret->end_room;
    if (findings.begin_text)
        ret->begin_text = ret->begin_room;
    return 0;
}

void sg_findings_free(struct sg_findings *findings)
{
    free(findings->conf);
    free(findings->command);
    for (uint32_t i = 0; i < findings->devices; i++) {
        sg_live_set_free(&findings->device[i].at_peak);
        sg_live_set_free(&findings->device[i].at_reserved);
    }
    for (uint32_t i = 0; i < findings->failures; i++)
        sg_live_set_free(&findings->failure[i].live);
    free(findings->device);
    sg_site_book_free(&findings->book);
    findings->devices = findings->failures = 0;
    findings->conf = findings->command = NULL;
    findings->device = NULL;
}
