#include "html/page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "html/keyframes.h"
#include "page_text.h"
#include "html/timeline.h"
#include "tool.h"

/* What a page may hold of all runs together, so that it stays below 5 MiB whatever the traces are. */
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

static uint32_t least(uint64_t a, uint64_t b)
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
static int read_trace(struct page *page, struct run *run, char *error)
{
    struct sg_trace_reader *reader;
    int status = sg_trace_open(run->path, &reader, error);
    if (status)
        return status;
    const struct sg_trace_info *info = sg_trace_info(reader);
    uint32_t devices = page->devices ? page->devices : 1, runs = (uint32_t)page->runs;
    bool replay = !info->header.imported && !run->findings->dropped && !run->findings->damaged &&
                  run->findings->events <= REPLAYED_EVENTS;
    uint32_t points = POINTS / devices, frames = least(FRAMES / runs, FRAMES_OF_RUN);
    run->frames.rows = least(ROWS / (frames * runs) + 8, ROWS_OF_FRAME);
    run->frames.pieces = least(PIECES / (frames * devices) + 32, PIECES_OF_MAP);
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

static void write_text(struct page *page, const char *key, const char *text)
{
    fprintf(page->out, ",\"%s\":", key);
    if (text && !page->redact)
        sg_tool_json_write(page->out, text);
    else
        fputs("null", page->out);
}

static void write_number(struct page *page, const char *key, uint64_t value, bool known)
{
    if (known)
        fprintf(page->out, ",\"%s\":%" PRIu64, key, value);
    else
        fprintf(page->out, ",\"%s\":null", key);
}

/* One column of the samples of a device. */
typedef uint64_t column_fn(const struct sg_sample *sample);
static uint64_t column_request(const struct sg_sample *sample) { return sample->request; }
static uint64_t column_us(const struct sg_sample *sample) { return sample->time_ns / 1000; }
static uint64_t column_requested(const struct sg_sample *sample) { return sample->device.requested; }
static uint64_t column_allocated(const struct sg_sample *sample) { return sample->device.allocated; }
static uint64_t column_reserved(const struct sg_sample *sample) { return sample->device.reserved; }

static uint64_t write_column(struct page *page, const struct sg_series *series, const char *key, column_fn *column)
{
    const char *comma = "";
    uint64_t count = 0;
    fprintf(page->out, ",\"%s\":[", key);
    for (size_t i = 0; i < series->count; i++) {
        struct sg_sample sample[SG_BUCKET_SAMPLES];
        size_t samples = sg_series_samples(&series->bucket[i], sample);
        for (size_t k = 0; k < samples; k++, comma = ",")
            fprintf(page->out, "%s%" PRIu64, comma, column(&sample[k]));
        count += samples;
    }
    putc(']', page->out);
    return count;
}

/* What calls that are not served held when most was taken, as pairs of bytes and words. */
static void write_outside(struct page *page, const struct sg_findings_device *device)
{
    const char *comma = "";
    write_number(page, "peak_taken", device->peak_taken, device->peak_taken);
    write_number(page, "outside_stays", sg_outside_stays(&device->outside), true);
    fputs(",\"outside\":[", page->out);
    for (int i = 0; i < SEGALLOC_OUTSIDE_COUNT; i++) {
        if (!device->outside.bytes[i])
            continue;
        fprintf(page->out, "%s[%" PRIu64 ",", comma, device->outside.bytes[i]);
        sg_tool_json_write(page->out, sg_outside_call((enum segalloc_outside)i));
        putc(']', page->out);
        comma = ",";
    }
    putc(']', page->out);
}

static void write_device(struct page *page, const struct run *run, const struct sg_findings_device *device)
{
    const uint64_t *peak = device->stats.peak;
    fprintf(page->out, "{\"ordinal\":%" PRIu32, device->ordinal);
    write_number(page, "total", device->total_bytes, device->total_bytes);
    write_number(page, "limit", device->limit_bytes, device->limit_bytes);
    write_number(page, "granularity", device->granularity, device->granularity);
    write_number(page, "smallest_card", device->smallest_card, device->smallest_card);
    write_number(page, "peak_requested", peak[SG_STAT_requested_bytes], device->known[SG_STAT_requested_bytes]);
    write_number(page, "peak_allocated", peak[SG_STAT_allocated_bytes], device->known[SG_STAT_allocated_bytes]);
    write_number(page, "peak_reserved", peak[SG_STAT_reserved_bytes], device->known[SG_STAT_reserved_bytes]);
    write_outside(page, device);
    write_number(page, "failures", device->stats.value[SG_STAT_ooms], device->known[SG_STAT_ooms]);
    write_number(page, "moved", device->stats.value[SG_STAT_pages_moved], device->known[SG_STAT_pages_moved]);
    write_number(page, "allocs", device->stats.value[SG_STAT_allocs], true);
    if (run->timeline && run->timeline->series[device->ordinal].count) {
        const struct sg_series *series = &run->timeline->series[device->ordinal];
        (void)write_column(page, series, "n", column_request);
        (void)write_column(page, series, "us", column_us);
        run->timeline->shown += write_column(page, series, "requested", column_requested);
        if (run->timeline->source != SG_TIMELINE_EVENTS) {
            (void)write_column(page, series, "allocated", column_allocated);
            (void)write_column(page, series, "reserved", column_reserved);
        }
    }
    putc('}', page->out);
}

static void write_lifetimes(struct page *page, const struct sg_timeline *timeline)
{
    const char *comma = "";
    fputs(",\"lifetimes\":[", page->out);
    for (int life = 0; life < SG_LIFETIMES; life++)
        for (int size = 0; size < SG_LIVE_CLASSES; size++)
            if (timeline->lifetime[life][size].blocks) {
                fprintf(page->out, "%s[%d,%d,%" PRIu64 ",%" PRIu64 "]", comma, life, size,
                    timeline->lifetime[life][size].blocks, timeline->lifetime[life][size].bytes);
                comma = ",";
            }
    fputs("],\"alive\":[", page->out);
    comma = "";
    for (int size = 0; size < SG_LIVE_CLASSES; size++)
        if (timeline->alive[size].blocks) {
            fprintf(page->out, "%s[%d,%" PRIu64 ",%" PRIu64 "]", comma, size, timeline->alive[size].blocks,
                timeline->alive[size].bytes);
            comma = ",";
        }
    putc(']', page->out);
}

static void write_marks(struct page *page, const struct run *run)
{
    const struct sg_timeline *timeline = run->timeline;
    const struct sg_site_book *book = &run->findings->book;
    char text[SG_SITE_TEXT];
    fputs(",\"marks\":[", page->out);
    for (uint32_t i = 0; i < run->marks; i++)
        fprintf(page->out, "%s[\"%s\",%" PRIu32 ",%" PRIu64 ",%" PRIu64 "]", i ? "," : "", run->mark[i].kind,
            run->mark[i].device, run->mark[i].request, run->mark[i].time_ns / 1000);
    fputs("],\"failures\":[", page->out);
    for (uint32_t i = 0; i < timeline->failures; i++) {
        const struct sg_timeline_failure *failure = &timeline->failure[i];
        fprintf(page->out, "%s[%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",", i ? "," : "",
            failure->device, failure->request, failure->time_ns / 1000, failure->bytes, failure->lacked,
            sg_html_text(&page->texts, sg_site_book_line(book, failure->site, text)));
        sg_html_write_stack(page->out, &page->texts, book, failure->site);
        putc(']', page->out);
    }
    fprintf(page->out, "],\"phase_depth\":%" PRIu32 ",\"phases\":[", timeline->phase_depth);
    for (uint32_t i = 0; i < timeline->phases; i++)
        fprintf(page->out, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu32 "]", i ? "," : "", timeline->phase[i].request,
                timeline->phase[i].time_ns / 1000,
                sg_html_text(&page->texts, sg_site_book_phase(book, timeline->phase[i].phase, text)));
    putc(']', page->out);
}

static void write_trace(struct page *page, const struct run *run)
{
    static const char *const sources[] = {"events", "statistics", "replay"};
    const struct sg_timeline *timeline = run->timeline;
    fprintf(page->out,
        ",\"source\":\"%s\",\"diverged\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"walked\":%" PRIu64 ",\"shown\":%" PRIu64
        ",\"duration_us\":%" PRIu64,
        sources[timeline->source], timeline->diverged, timeline->requests, timeline->walked, timeline->shown,
        timeline->duration_ns / 1000);
    write_marks(page, run);
    write_lifetimes(page, timeline);
    fputs(",\"frames\":[", page->out);
    for (size_t i = 0; i < run->frames.count; i++) {
        const struct sg_keyframe *frame = &run->frames.frame[i];
        fprintf(page->out, "%s{\"n\":%" PRIu64 ",\"us\":%" PRIu64 ",\"live\":%s,\"map\":%s}", i ? "," : "",
            frame->request, frame->time_ns / 1000, frame->live ? frame->live : "[]", frame->map ? frame->map : "null");
    }
    bool whole = fflush(run->groups.out) == 0;
    fprintf(page->out, "],\"groups\":[%s]", whole && run->groups.json ? run->groups.json : "");
}

struct advice {
    struct page *page;
    const char *comma;
};

static void write_advice(void *user, const char *line)
{
    struct advice *advice = user;
    fputs(advice->comma, advice->page->out);
    sg_tool_json_write(advice->page->out, line);
    advice->comma = ",";
}

static void write_run(struct page *page, const struct run *run)
{
    const struct sg_findings *findings = run->findings;
    struct advice advice = {page, ""};
    char verdict[1024];
    fputs("{\"verdict\":", page->out);
    sg_tool_json_write(page->out, sg_findings_verdict(findings, verdict, sizeof verdict));
    write_text(page, "file", findings->path);
    write_text(page, "command", findings->command);
    fprintf(page->out, ",\"rehearsed\":%s", findings->cards ? "true" : "false");
    write_text(page, "conf", findings->conf);
    write_number(page, "rank", (uint64_t)findings->rank, findings->rank >= 0);
    write_number(page, "pid", findings->pid, findings->pid && !page->redact);
    write_text(page, "begin_text", findings->begin_text);
    write_text(page, "end_text", findings->end_text);
    write_number(page, "events", findings->events, findings->trace);
    write_number(page, "dropped", findings->dropped, findings->trace);
    fprintf(page->out,
        ",\"imported\":%s,\"at_least\":%s,\"allocs\":%" PRIu64 ",\"ooms\":%" PRIu64 ",\"passed_on\":%" PRIu64,
        findings->imported ? "true" : "false", findings->at_least ? "true" : "false", findings->allocs, findings->ooms,
        findings->passed_on);
    fputs(",\"devices\":[", page->out);
    for (uint32_t i = 0; i < findings->devices; i++) {
        if (i)
            putc(',', page->out);
        write_device(page, run, &findings->device[i]);
    }
    fputs("],\"advice\":[", page->out);
    sg_findings_advice(findings, write_advice, &advice);
    putc(']', page->out);
    if (findings->trace)
        write_trace(page, run);
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
        status = read_trace(page, &run, error);
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
    if (trials->tried) {
        fputs("],\"tune\":", page->out);
        sg_trials_write_json(page->out, trials->tried);
    } else {
        fputs("],\"untried\":", page->out);
        sg_tool_json_write(page->out, trials->why);
    }
}

static int write_runs(struct page *page, const struct sg_findings *const *runs, const struct sg_page_trials *trials,
    char *error)
{
    int status = 0;
    fprintf(page->out, "{\"schema\":\"segalloc.page/1\",\"version\":\"" SEGALLOC_VERSION "\",\"redacted\":%s,\"runs\":[",
        page->redact ? "true" : "false");
    for (size_t i = 0; i < page->runs && !status; i++) {
        if (i)
            putc(',', page->out);
        status = add_run(page, runs[i], error);
    }
    if (!status)
        write_trials(page, trials);
    if (!status && fflush(page->texts.out) == 0)
        fprintf(page->out, ",\"texts\":[%s]}", page->texts.json ? page->texts.json : "");
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
