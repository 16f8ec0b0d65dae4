#include "html/page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "html/keyframes.h"
#include "json.h"
#include "page_text.h"
#include "report/report.h"
#include "html/timeline.h"

/* The most that a page holds of all runs together, so that it stays below 5 MiB whatever the traces are. */
enum {
    POINTS = 16000,
    FRAMES = 480,
    FRAMES_OF_RUN = 64,
    ROWS = 20000,
    ROWS_OF_FRAME = 250,
    PIECES = 50000,
    PIECES_OF_MAP = 1500,
    TEXT_BYTES = 700 << 10,
    GROUP_BYTES = 700 << 10,
    MAP_BYTES = 1200 << 10,
    MARKED_FAILURES = 8,
};
/* Longer traces are not replayed for it: that takes a second for some million events. */
#define REPLAYED_EVENTS UINT64_C(20000000)

struct page {
    FILE *out; /* of the data */
    struct sg_html_list texts;
    size_t runs;
    uint32_t devices; /* of all runs */
    bool redact;
};

struct mark {
    const char *kind;
    uint64_t request, time_ns;
    uint32_t device;
};

struct run {
    const struct sg_findings *findings; /* as shown: without names where they are to be left out */
    const char *path;
    struct sg_timeline *timeline;
    struct sg_keyframes frames;
    struct sg_html_list groups;
    struct mark mark[3 * SG_DICTIONARY_DEVICES + MARKED_FAILURES + 1];
    uint32_t marks;
};

static uint32_t page_least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

static void add_mark(struct run *run, const char *kind, uint32_t device, uint64_t request, uint64_t time_ns)
{
    if (request)
        run->mark[run->marks++] = (struct mark){kind, request, time_ns, device};
}

static void mark_peaks(struct run *run, uint32_t device)
{
    const struct sg_series *series = &run->timeline->series[device];
    const struct sg_sample *requested = NULL, *allocated = NULL, *reserved = NULL;
    for (size_t i = 0; i < series->count; i++) {
        const struct sg_bucket *bucket = &series->bucket[i];
        if (!requested || bucket->high.device.requested > requested->device.requested)
            requested = &bucket->high;
        if (!allocated || bucket->allocated.device.allocated > allocated->device.allocated)
            allocated = &bucket->allocated;
        if (!reserved || bucket->reserved.device.reserved > reserved->device.reserved)
            reserved = &bucket->reserved;
    }
    if (!requested)
        return;
    add_mark(run, "requested", device, requested->request, requested->time_ns);
    if (run->timeline->source == SG_TIMELINE_EVENTS || !reserved->device.reserved)
        return;
    add_mark(run, "allocated", device, allocated->request, allocated->time_ns);
    add_mark(run, "reserved", device, reserved->request, reserved->time_ns);
}

static void find_marks(struct run *run)
{
    const struct sg_timeline *timeline = run->timeline;
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        mark_peaks(run, i);
    for (uint32_t i = 0; i < timeline->failures && i < MARKED_FAILURES; i++)
        add_mark(run, "failure", timeline->failure[i].device, timeline->failure[i].request,
            timeline->failure[i].time_ns);
    add_mark(run, "end", 0, timeline->requests, timeline->duration_ns);
}

static int by_request(const void *a, const void *b)
{
    const struct sg_keyframe *one = a, *other = b;
    if (one->request != other->request)
        return one->request < other->request ? -1 : 1;
    return other->marked - one->marked;
}

/* The marked moments, and of each stretch of each device the moment at which most was requested. */
static int choose_frames(struct run *run, uint32_t most)
{
    struct sg_keyframes *frames = &run->frames;
    size_t used = 0, room = run->marks + most + SG_DICTIONARY_DEVICES;
    frames->frame = calloc(room, sizeof *frames->frame);
    if (!frames->frame)
        return -ENOMEM;
    for (uint32_t i = 0; i < run->marks; i++)
        frames->frame[used++] =
            (struct sg_keyframe){.request = run->mark[i].request, .time_ns = run->mark[i].time_ns, .marked = true};
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++) {
        const struct sg_series *series = &run->timeline->series[i];
        size_t stretches = most / (run->findings->devices ? run->findings->devices : 1) + 1;
        for (size_t k = 0, at = 0; k < stretches && series->count; k++) {
            const struct sg_sample *high = NULL;
            for (size_t end = (k + 1) * series->count / stretches; at < end; at++)
                if (!high || series->bucket[at].high.device.requested > high->device.requested)
                    high = &series->bucket[at].high;
            if (high && high->request && used < room)
                frames->frame[used++] = (struct sg_keyframe){.request = high->request, .time_ns = high->time_ns};
        }
    }
    qsort(frames->frame, used, sizeof *frames->frame, by_request);
    for (size_t i = 0; i < used; i++)
        if (!frames->count || frames->frame[frames->count - 1].request != frames->frame[i].request)
            frames->frame[frames->count++] = frames->frame[i];
    return 0;
}

/* Reads the trace into the run. */
static int page_read_trace(struct page *page, struct run *run, char *error)
{
    struct sg_trace_reader *reader;
    int status = sg_trace_open(run->path, &reader, error);
    if (status)
        return status;
    const struct sg_trace_info *info = sg_trace_info(reader);
    uint32_t devices = page->devices ? page->devices : 1, runs = (uint32_t)page->runs;
    bool replay = !info->header.imported && !run->findings->dropped && !run->findings->damaged &&
                  run->findings->events <= REPLAYED_EVENTS;
    uint32_t points = POINTS / devices, frames = page_least(FRAMES / runs, FRAMES_OF_RUN);
    run->frames.rows = page_least(ROWS / (frames * runs) + 8, ROWS_OF_FRAME);
    run->frames.pieces = page_least(PIECES / (frames * devices) + 32, PIECES_OF_MAP);
    run->frames.map_bytes = MAP_BYTES / runs;
    status = sg_timeline_read(reader, points < 32 ? 32 : points, replay, run->timeline);
    if (!status)
        find_marks(run);
    if (!status)
        status = choose_frames(run, frames);
    if (!status)
        status = sg_keyframes_read_live(&run->frames, reader);
    if (!status && run->timeline->source == SG_TIMELINE_REPLAY)
        status = sg_keyframes_read_maps(&run->frames, reader, SG_DICTIONARY_DEVICES);
    sg_trace_close(reader);
    if (status)
        snprintf(error, SG_FINDINGS_ERROR, "%s",
            status == -ESPIPE ? "a page needs a trace that can be read twice, not a pipe" : strerror(-status));
    return status;
}

static void set_text(const struct page *page, json_t *object, const char *key, const char *text)
{
    sg_json_set_text(object, key, page->redact ? NULL : text);
}

/* One column of the samples of a device. */
typedef uint64_t column_fn(const struct sg_sample *sample);
static uint64_t column_request(const struct sg_sample *sample) { return sample->request; }
static uint64_t column_us(const struct sg_sample *sample) { return sample->time_ns / 1000; }
static uint64_t column_requested(const struct sg_sample *sample) { return sample->device.requested; }
static uint64_t column_allocated(const struct sg_sample *sample) { return sample->device.allocated; }
static uint64_t column_reserved(const struct sg_sample *sample) { return sample->device.reserved; }

static uint64_t set_column(json_t *object, const struct sg_series *series, const char *key, column_fn *column)
{
    json_t *values = sg_json_array();
    for (size_t i = 0; i < series->count; i++) {
        struct sg_sample sample[SG_BUCKET_SAMPLES];
        size_t samples = sg_series_samples(&series->bucket[i], sample);
        for (size_t k = 0; k < samples; k++)
            sg_json_add(values, sg_json_number(column(&sample[k])));
    }
    sg_json_set(object, key, values);
    return json_array_size(values);
}

/* A row of numbers, which the page's scripts read by their place. */
#define ROW(...) \
    page_json_row((const uint64_t[]){__VA_ARGS__}, sizeof(const uint64_t[]){__VA_ARGS__} / sizeof(uint64_t))
static json_t *page_json_row(const uint64_t *number, size_t count)
{
    json_t *row = sg_json_array();
    for (size_t i = 0; i < count; i++)
        sg_json_add(row, sg_json_number(number[i]));
    return row;
}

/* Memory of calls that are not served when most was taken, as pairs of bytes and words. */
static void page_set_outside(json_t *object, const struct sg_findings_device *device)
{
    json_t *outside = sg_json_array();
    sg_json_set_known(object, "peak_taken", device->peak_taken, device->peak_taken);
    SG_JSON_NUMBERS(object, {"outside_stays", sg_outside_stays(&device->outside)});
    for (int i = 0; i < SEGALLOC_OUTSIDE_COUNT; i++) {
        if (!device->outside.bytes[i])
            continue;
        json_t *row = ROW(device->outside.bytes[i]);
        sg_json_add(row, sg_json_text(sg_outside_call((enum segalloc_outside)i)));
        sg_json_add(outside, row);
    }
    sg_json_set(object, "outside", outside);
}

/* Roles at the first failure of a device, or at its peak: the moment that the first screen is about. */
static void page_set_roles(json_t *object, const struct sg_findings *findings, const struct sg_findings_device *device)
{
    const struct sg_roles *roles = &device->roles;
    enum sg_role order[SG_ROLE_COUNT];
    json_t *rows = sg_json_array();
    for (uint32_t i = findings->failures; i-- > 0;)
        roles = findings->failure[i].device == device->ordinal ? &findings->failure_roles[i] : roles;
    uint32_t count = sg_roles_order(roles, order);
    for (uint32_t i = 0; i < count; i++) {
        json_t *row = ROW(roles->bytes[order[i]]);
        sg_json_add(row, sg_json_text(sg_role_text(order[i])));
        sg_json_add(rows, row);
    }
    sg_json_set(object, "roles", rows);
}

static json_t *page_json_device(const struct run *run, const struct sg_findings_device *device)
{
    const uint64_t *peak = device->stats.peak, *value = device->stats.value;
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"ordinal", device->ordinal});
    sg_json_set_known(result, "total", device->total_bytes, device->total_bytes);
    sg_json_set_known(result, "limit", device->limit_bytes, device->limit_bytes);
    sg_json_set_known(result, "granularity", device->granularity, device->granularity);
    sg_json_set_known(result, "smallest_card", device->smallest_card, device->smallest_card);
    sg_json_set_known(result, "peak_requested", peak[SG_STAT_requested_bytes], device->known[SG_STAT_requested_bytes]);
    sg_json_set_known(result, "peak_allocated", peak[SG_STAT_allocated_bytes], device->known[SG_STAT_allocated_bytes]);
    sg_json_set_known(result, "peak_reserved", peak[SG_STAT_reserved_bytes], device->known[SG_STAT_reserved_bytes]);
    page_set_outside(result, device);
    page_set_roles(result, run->findings, device);
    sg_json_set_known(result, "failures", value[SG_STAT_ooms], device->known[SG_STAT_ooms]);
    sg_json_set_known(result, "moved", value[SG_STAT_pages_moved], device->known[SG_STAT_pages_moved]);
    SG_JSON_NUMBERS(result, {"allocs", value[SG_STAT_allocs]});
    if (run->timeline && run->timeline->series[device->ordinal].count) {
        const struct sg_series *series = &run->timeline->series[device->ordinal];
        (void)set_column(result, series, "n", column_request);
        (void)set_column(result, series, "us", column_us);
        run->timeline->shown += set_column(result, series, "requested", column_requested);
        if (run->timeline->source != SG_TIMELINE_EVENTS) {
            (void)set_column(result, series, "allocated", column_allocated);
            (void)set_column(result, series, "reserved", column_reserved);
        }
    }
    return result;
}

static void set_lifetimes(json_t *object, const struct sg_timeline *timeline)
{
    json_t *lifetimes = sg_json_array(), *alive = sg_json_array();
    for (unsigned life = 0; life < SG_LIFETIMES; life++)
        for (unsigned size = 0; size < SG_LIVE_CLASSES; size++)
            if (timeline->lifetime[life][size].blocks)
                sg_json_add(lifetimes,
                    ROW(life, size, timeline->lifetime[life][size].blocks, timeline->lifetime[life][size].bytes));
    for (unsigned size = 0; size < SG_LIVE_CLASSES; size++)
        if (timeline->alive[size].blocks)
            sg_json_add(alive, ROW(size, timeline->alive[size].blocks, timeline->alive[size].bytes));
    sg_json_set(object, "lifetimes", lifetimes);
    sg_json_set(object, "alive", alive);
}

static json_t *page_json_failures(struct page *page, const struct run *run)
{
    const struct sg_site_book *book = &run->findings->book;
    char text[SG_SITE_TEXT];
    json_t *failures = sg_json_array();
    for (uint32_t i = 0; i < run->timeline->failures; i++) {
        const struct sg_timeline_failure *failure = &run->timeline->failure[i];
        uint32_t site = sg_html_text(&page->texts, sg_site_book_line(book, failure->site, text));
        json_t *row =
            ROW(failure->device, failure->request, failure->time_ns / 1000, failure->bytes, failure->lacked, site);
        sg_json_add(row, sg_html_stack(&page->texts, book, failure->site));
        sg_json_add(failures, row);
    }
    return failures;
}

static void set_marks(struct page *page, json_t *object, const struct run *run)
{
    const struct sg_timeline *timeline = run->timeline;
    char text[SG_SITE_TEXT];
    json_t *marks = sg_json_array(), *phases = sg_json_array();
    for (uint32_t i = 0; i < run->marks; i++) {
        const struct mark *mark = &run->mark[i];
        json_t *row = sg_json_array();
        sg_json_add(row, sg_json_text(mark->kind));
        json_t *place = ROW(mark->device, mark->request, mark->time_ns / 1000);
        (void)json_array_extend(row, place);
        json_decref(place);
        sg_json_add(marks, row);
    }
    sg_json_set(object, "marks", marks);
    sg_json_set(object, "failures", page_json_failures(page, run));
    SG_JSON_NUMBERS(object, {"phase_depth", timeline->phase_depth});
    for (uint32_t i = 0; i < timeline->phases; i++)
        sg_json_add(phases,
            ROW(timeline->phase[i].request, timeline->phase[i].time_ns / 1000,
                sg_html_text(&page->texts, sg_site_book_phase(&run->findings->book, timeline->phase[i].phase, text))));
    sg_json_set(object, "phases", phases);
}

/* Sets the members of a trace that go before its frames. */
static void page_set_trace(struct page *page, json_t *object, const struct run *run)
{
    static const char *const sources[] = {"events", "statistics", "replay"};
    const struct sg_timeline *timeline = run->timeline;
    sg_json_set_text(object, "source", sources[timeline->source]);
    SG_JSON_NUMBERS(object, {"diverged", timeline->diverged}, {"requests", timeline->requests},
        {"walked", timeline->walked}, {"shown", timeline->shown}, {"duration_us", timeline->duration_ns / 1000});
    set_marks(page, object, run);
    set_lifetimes(object, timeline);
}

/* Frames and groups are the most of a page. They were written to memory as they were found. */
static void write_frames(struct page *page, const struct run *run)
{
    sg_json_write_key(page->out, "frames");
    putc('[', page->out);
    for (size_t i = 0; i < run->frames.count; i++) {
        const struct sg_keyframe *frame = &run->frames.frame[i];
        json_t *moment = sg_json_object(NULL);
        SG_JSON_NUMBERS(moment, {"n", frame->request}, {"us", frame->time_ns / 1000});
        fputs(i ? ",{" : "{", page->out);
        sg_json_write_members(page->out, moment);
        sg_json_write_key(page->out, "live");
        fputs(frame->live ? frame->live : "[]", page->out);
        sg_json_write_key(page->out, "map");
        fprintf(page->out, "%s}", frame->map ? frame->map : "null");
    }
    bool whole = fflush(run->groups.out) == 0;
    putc(']', page->out);
    sg_json_write_key(page->out, "groups");
    fprintf(page->out, "[%s]", whole && run->groups.json ? run->groups.json : "");
}

static void page_add_advice(void *advice, const char *line)
{
    sg_json_add(advice, sg_json_text(line));
}

static void page_add_line(void *user, const char *label, const char *line)
{
    json_t *row = sg_json_array();
    sg_json_add(row, sg_json_text(label));
    sg_json_add(row, sg_json_text(line));
    sg_json_add(user, row);
}

/* Findings of a run that checked itself: the sum, and a list of words and lines. */
static void page_set_checked(json_t *object, const struct sg_findings *findings)
{
    char sum[1024];
    json_t *found = sg_json_array();
    if (*sg_report_checked_sum(findings, sum, sizeof sum)) {
        sg_json_set_text(object, "checked", sum);
        for (uint32_t i = 0; i < sg_checked_kept(&findings->checked); i++) {
            const struct sg_checked_finding *finding = &findings->checked.finding[i];
            json_t *lines = sg_json_array(), *row = sg_json_array();
            sg_report_checked_lines(findings, finding, page_add_line, lines);
            sg_json_add(row, sg_json_text(sg_report_checked_words(finding)));
            sg_json_add(row, lines);
            sg_json_add(found, row);
        }
    }
    sg_json_set(object, "found", found);
}

static void write_run(struct page *page, const struct run *run)
{
    const struct sg_findings *findings = run->findings;
    char verdict[1024];
    json_t *result = sg_json_object(NULL), *devices = sg_json_array(), *advice = sg_json_array();
    sg_json_set_text(result, "verdict", sg_findings_verdict(findings, verdict, sizeof verdict));
    set_text(page, result, "file", findings->path);
    set_text(page, result, "command", findings->command);
    sg_json_set_flag(result, "rehearsed", findings->cards);
    set_text(page, result, "conf", findings->conf);
    sg_json_set_known(result, "rank", (uint64_t)findings->rank, findings->rank >= 0);
    sg_json_set_known(result, "pid", findings->pid, findings->pid && !page->redact);
    set_text(page, result, "begin_text", findings->begin_text);
    set_text(page, result, "end_text", findings->end_text);
    sg_json_set_known(result, "events", findings->events, findings->trace);
    sg_json_set_known(result, "dropped", findings->dropped, findings->trace);
    sg_json_set_flag(result, "imported", findings->imported);
    sg_json_set_flag(result, "at_least", findings->at_least);
    SG_JSON_NUMBERS(result, {"allocs", findings->allocs}, {"ooms", findings->ooms}, {"passed_on", findings->passed_on});
    for (uint32_t i = 0; i < findings->devices; i++)
        sg_json_add(devices, page_json_device(run, &findings->device[i]));
    sg_json_set(result, "devices", devices);
    sg_findings_advice(findings, page_add_advice, advice);
    sg_json_set(result, "advice", advice);
    page_set_checked(result, findings);
    if (findings->trace)
        page_set_trace(page, result, run);
    putc('{', page->out);
    sg_json_write_members(page->out, result);
    if (findings->trace)
        write_frames(page, run);
    putc('}', page->out);
}

static int add_run(struct page *page, const struct sg_findings *findings, char *error)
{
    static char program[] = "PROGRAM";
    struct sg_findings shown = *findings;
    if (page->redact) {
        shown.path = "FILE";
        shown.command = program;
        shown.book.redacted = true;
    }
    struct run run = {.findings = &shown,
        .path = findings->path,
        .frames = {.book = &shown.book, .texts = &page->texts, .groups = &run.groups}};
    bool fine = sg_html_list_init(&run.groups, GROUP_BYTES / page->runs);
    run.timeline = calloc(1, sizeof *run.timeline);
    int status = fine && run.timeline ? 0 : -ENOMEM;
    if (status)
        snprintf(error, SG_FINDINGS_ERROR, "out of memory");
    else if (shown.trace)
        status = page_read_trace(page, &run, error);
    if (!status)
        write_run(page, &run);
    if (run.timeline)
        sg_timeline_free(run.timeline);
    free(run.timeline);
    sg_keyframes_free(&run.frames);
    sg_html_list_free(&run.groups);
    return status;
}

static void write_trials(struct page *page, const struct sg_page_trials *trials)
{
    sg_json_write_key(page->out, trials->tried ? "tune" : "untried");
    sg_json_write(page->out, trials->tried ? sg_trials_json(trials->tried) : sg_json_text(trials->why));
}

static int write_runs(struct page *page, const struct sg_findings *const *runs, const struct sg_page_trials *trials,
    char *error)
{
    int status = 0;
    json_t *head = sg_json_object("segalloc.page/1");
    sg_json_set_text(head, "version", SEGALLOC_VERSION);
    sg_json_set_flag(head, "redacted", page->redact);
    putc('{', page->out);
    sg_json_write_members(page->out, head);
    sg_json_write_key(page->out, "runs");
    putc('[', page->out);
    for (size_t i = 0; i < page->runs && !status; i++) {
        if (i)
            putc(',', page->out);
        status = add_run(page, runs[i], error);
    }
    putc(']', page->out);
    if (!status)
        write_trials(page, trials);
    if (!status && fflush(page->texts.out) == 0) {
        sg_json_write_key(page->out, "texts");
        fprintf(page->out, "[%s]}", page->texts.json ? page->texts.json : "");
    }
    return status;
}

int sg_page_write(FILE *out, const struct sg_findings *const *runs, size_t count, const struct sg_page_trials *trials,
    bool redact, char *error)
{
    struct page page = {.runs = count, .redact = redact};
    char *json = NULL;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        page.devices += runs[i]->devices;
    page.out = open_memstream(&json, &bytes);
    int status = page.out && sg_html_list_init(&page.texts, TEXT_BYTES) ? 0 : -ENOMEM;
    if (status)
        snprintf(error, SG_FINDINGS_ERROR, "out of memory");
    if (!status)
        status = write_runs(&page, runs, trials, error);
    if (page.out && fclose(page.out) != 0 && !status) {
        status = -ENOMEM;
        snprintf(error, SG_FINDINGS_ERROR, "out of memory");
    }
    if (!status) {
        fputs((const char *)page_before, out);
        sg_html_write_escaped(out, json, bytes);
        fputs((const char *)page_after, out);
    }
    sg_html_list_free(&page.texts);
    free(json);
    return status;
}
