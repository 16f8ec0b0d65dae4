/* Timelines: one series a device. */
#include "export/export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/series.h"
#include "json.h"
#include "size.h"

enum { FAILURES_SHOWN = 1000 };

struct timeline {
    const struct sg_export_options *options;
    uint64_t last;      /* event */
    struct sg_series series[SG_DICTIONARY_DEVICES];
    struct failure {
        uint64_t time_ns, bytes, lacked, number;
        uint32_t device;
    } failure[FAILURES_SHOWN];
    size_t failures;
    uint64_t events;
};

static void timeline_forget_failure(struct timeline *timeline, uint64_t number)
{
    size_t at = timeline->failures;
    while (at > 0 && timeline->failure[at - 1].number != number)
        at--;
    if (!at)
        return;
    memmove(&timeline->failure[at - 1], &timeline->failure[at], (timeline->failures - at) * sizeof *timeline->failure);
    timeline->failures--;
}

static int timeline_take_event(void *user, const struct sg_walk_event *event)
{
    struct timeline *timeline = user;
    if (event->number > timeline->last ||
        (timeline->options->moment == SG_MOMENT_TIME && event->time_ns >= timeline->options->to_ns))
        return 1;
    if (event->kind == SG_WALK_SERVED)
        timeline_forget_failure(timeline, event->failed_number);
    if (event->time_ns < timeline->options->from_ns)
        return 0;
    timeline->events += event->kind < SG_WALK_SERVED;
    if (event->kind == SG_WALK_FAILURE && timeline->failures < FAILURES_SHOWN)
        timeline->failure[timeline->failures++] =
            (struct failure){event->time_ns, event->size, event->lacked, event->number, event->device};
    return sg_series_add(&timeline->series[event->device], event);
}

/* The timeline up to the moment asked for; to be freed by timeline_discard(). */
static int read_timeline(struct sg_trace_reader *reader, const struct sg_export_options *options, struct timeline **ret)
{
    struct sg_moment_found found = {.all = UINT64_MAX};
    bool whole = options->moment == SG_MOMENT_END || options->moment == SG_MOMENT_TIME;
    int error = whole ? 0 : sg_moment_find(reader, options->moment, options->to_ns, &found);
    struct timeline *timeline = error ? NULL : calloc(1, sizeof *timeline);
    *ret = timeline;
    if (!timeline)
        return error ? error : -ENOMEM;
    timeline->options = options;
    timeline->last = found.all;
    for (int i = 0; i < SG_DICTIONARY_DEVICES; i++)
        timeline->series[i].most = options->points;
    return sg_walk(reader, timeline_take_event, timeline);
}

static void timeline_discard(struct timeline *timeline)
{
    for (int i = 0; timeline && i < SG_DICTIONARY_DEVICES; i++)
        sg_series_free(&timeline->series[i]);
    free(timeline);
}

/* Calls `put` with each sample of the device; returns how many there were. */
typedef void put_fn(void *user, uint32_t device, const struct sg_sample *sample);
static uint64_t timeline_each_point(const struct timeline *timeline, uint32_t device, put_fn *put, void *user)
{
    uint64_t count = 0;
    for (size_t i = 0; i < timeline->series[device].count; i++) {
        struct sg_sample sample[SG_BUCKET_SAMPLES];
        size_t samples = sg_series_samples(&timeline->series[device].bucket[i], sample);
        for (size_t k = 0; k < samples; k++)
            put(user, device, &sample[k]);
        count += samples;
    }
    return count;
}

/* An event of Chrome's format: its kind, device, and time in microseconds. */
static json_t *json_event(const char *kind, uint32_t device, const char *name)
{
    json_t *event = sg_json_object(NULL);
    sg_json_set_text(event, "ph", kind);
    SG_JSON_NUMBERS(event, {"pid", device}, {"tid", 0});
    sg_json_set_text(event, "name", name);
    return event;
}

static void set_time(json_t *event, uint64_t time_ns)
{
    sg_json_set(event, "ts", sg_json_real((double)time_ns / 1000, 3));
}

/* Events are written one by one, each on a line of its own, since a trace has many. */
static void timeline_put_event(FILE *out, json_t *event, json_t *arguments)
{
    sg_json_set(event, "args", arguments);
    fputs(",\n", out);
    sg_json_write(out, event);
}

enum { LEVELS = 3, EVENT_TEXT = 128 };
static const char *const level_names[LEVELS] = {"requested", "allocated", "reserved"};

/* The counters of a device, as jansson writes their events, parted where the time and the bytes go. A trace has a million of
   them, and only these two numbers change. For example, {"ph":"C","pid":0,"tid":0,"name":"requested","ts": is before[0],
   ,"args":{"bytes": is between and }} is after. */
struct counter {
    FILE *out;
    char before[LEVELS][EVENT_TEXT], between[EVENT_TEXT], after[EVENT_TEXT];
};

/* The text of one event of a counter, parted at its two numbers, which are MARK in it. */
static void counter_part(struct counter *counter, uint32_t device, int level)
{
    static const char mark[] = "9007199254740881";
    json_t *event = json_event("C", device, level_names[level]), *arguments = sg_json_object(NULL);
    uint64_t number = strtoull(mark, NULL, 10);
    SG_JSON_NUMBERS(event, {"ts", number});
    SG_JSON_NUMBERS(arguments, {"bytes", number});
    sg_json_set(event, "args", arguments);
    char *text = sg_json_line(event), *time = strstr(text, mark), *bytes = strstr(time + 1, mark);
    snprintf(counter->before[level], EVENT_TEXT, "%.*s", (int)(time - text), text);
    snprintf(counter->between, EVENT_TEXT, "%.*s", (int)(bytes - time - strlen(mark)), time + strlen(mark));
    snprintf(counter->after, EVENT_TEXT, "%s", bytes + strlen(mark));
    free(text);
}

static struct counter counter_make(FILE *out, uint32_t device)
{
    struct counter counter = {.out = out};
    for (int i = 0; i < LEVELS; i++)
        counter_part(&counter, device, i);
    return counter;
}

static void counter_put(const struct counter *counter, const char *time_us, int level, uint64_t value)
{
    fprintf(counter->out, ",\n%s%s%s%" PRIu64 "%s", counter->before[level], time_us, counter->between, value,
        counter->after);
}

/* Microseconds as jansson writes a real: 1500 ns is 1.5, and 2000 ns is 2.0. */
static void format_time(uint64_t time_ns, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "%" PRIu64 ".%03u", time_ns / 1000, (unsigned)(time_ns % 1000));
    for (int zeros = 2; zeros > 0 && text[length - 1] == '0'; zeros--)
        text[--length] = '\0';
}

static void put_counters(void *user, uint32_t device, const struct sg_sample *sample)
{
    const struct counter *counter = user;
    char time_us[32];
    (void)device;
    format_time(sample->time_ns, time_us, sizeof time_us);
    counter_put(counter, time_us, 0, sample->device.requested);
    if (!sample->device.knows_reserved)
        return;
    counter_put(counter, time_us, 1, sample->device.allocated);
    counter_put(counter, time_us, 2, sample->device.reserved);
}

static void put_failure(FILE *out, const struct failure *failure)
{
    char size[SG_SIZE_TEXT], name[SG_SIZE_TEXT + 32];
    snprintf(name, sizeof name, "out of memory: %s", sg_size_format(failure->bytes, size));
    json_t *event = json_event("i", failure->device, name), *arguments = sg_json_object(NULL);
    sg_json_set_text(event, "s", "p");
    sg_json_set_text(event, "cat", "failure");
    set_time(event, failure->time_ns);
    SG_JSON_NUMBERS(arguments, {"bytes", failure->bytes});
    if (failure->lacked)
        SG_JSON_NUMBERS(arguments, {"short_by_bytes", failure->lacked});
    timeline_put_event(out, event, arguments);
}

static void timeline_put_device(FILE *out, uint32_t device)
{
    char name[32];
    snprintf(name, sizeof name, "device %" PRIu32, device);
    json_t *arguments = sg_json_object(NULL);
    sg_json_set_text(arguments, "name", name);
    timeline_put_event(out, json_event("M", device, "process_name"), arguments);
}

int sg_export_chrome(struct sg_trace_reader *reader, const struct sg_export_options *options, FILE *out,
                     struct sg_exported *ret)
{
    struct timeline *timeline;
    int error = read_timeline(reader, options, &timeline);
    if (!error) {
        json_t *label = json_event("M", 0, "process_labels"), *labels = sg_json_object(NULL),
               *other = sg_json_object(NULL);
        json_t *head = sg_json_object(NULL);
        sg_json_set_text(labels, "labels", sg_trace_info(reader)->command);
        sg_json_set(label, "args", labels);
        sg_json_set_text(head, "displayTimeUnit", "ms");
        putc('{', out);
        sg_json_write_members(out, head);
        sg_json_write_key(out, "traceEvents");
        fputs("[\n", out);
        sg_json_write(out, label);
        for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++) {
            if (!timeline->series[i].count)
                continue;
            timeline_put_device(out, i);
            struct counter counter = counter_make(out, i);
            ret->shown += timeline_each_point(timeline, i, put_counters, &counter);
        }
        for (size_t i = 0; i < timeline->failures; i++)
            put_failure(out, &timeline->failure[i]);
        ret->events = timeline->events;
        sg_json_set_text(other, "producer", "segalloc " SEGALLOC_VERSION);
        SG_JSON_NUMBERS(other, {"events", ret->events}, {"shown", ret->shown});
        fputs("\n]", out);
        sg_json_write_key(out, "otherData");
        sg_json_write(out, other);
        fputs("}\n", out);
    }
    timeline_discard(timeline);
    return error;
}

static void put_row(void *out, uint32_t device, const struct sg_sample *sample)
{
    const struct sg_walk_device *at = &sample->device;
    fprintf(out, "%" PRIu64 ".%09d,%" PRIu64 ",%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
        sample->time_ns / 1000000000, (int)(sample->time_ns % 1000000000), sample->number, device, at->requested,
        at->blocks, at->failures);
    if (at->knows_reserved)
        fprintf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", at->allocated, at->pending, at->reserved);
    else
        fputs(",,,\n", out);
}

int sg_export_csv(struct sg_trace_reader *reader, const struct sg_export_options *options, FILE *out,
                  struct sg_exported *ret)
{
    struct timeline *timeline;
    int error = read_timeline(reader, options, &timeline);
    if (!error)
        fputs("time_s,event,device,requested_bytes,blocks,failures,allocated_bytes,pending_bytes,reserved_bytes\n", out);
    for (uint32_t i = 0; !error && i < SG_DICTIONARY_DEVICES; i++)
        ret->shown += timeline_each_point(timeline, i, put_row, out);
    ret->events = error ? 0 : timeline->events;
    timeline_discard(timeline);
    return error;
}
