/* Timelines: one series a device. */
#include "export/export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/series.h"
#include "size.h"
#include "tool.h"

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

static void forget_failure(struct timeline *timeline, uint64_t number)
{
    size_t at = timeline->failures;
    while (at > 0 && timeline->failure[at - 1].number != number)
        at--;
    if (!at)
        return;
    memmove(&timeline->failure[at - 1], &timeline->failure[at], (timeline->failures - at) * sizeof *timeline->failure);
    timeline->failures--;
}

static int take(void *user, const struct sg_walk_event *event)
{
    struct timeline *timeline = user;
    if (event->number > timeline->last ||
        (timeline->options->moment == SG_MOMENT_TIME && event->time_ns >= timeline->options->to_ns))
        return 1;
    if (event->kind == SG_WALK_SERVED)
        forget_failure(timeline, event->failed_number);
    if (event->time_ns < timeline->options->from_ns)
        return 0;
    timeline->events += event->kind < SG_WALK_SERVED;
    if (event->kind == SG_WALK_FAILURE && timeline->failures < FAILURES_SHOWN)
        timeline->failure[timeline->failures++] =
            (struct failure){event->time_ns, event->size, event->lacked, event->number, event->device};
    return sg_series_add(&timeline->series[event->device], event);
}

/* The timeline up to the moment asked for; to be freed by discard(). */
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
    return sg_walk(reader, take, timeline);
}

static void discard(struct timeline *timeline)
{
    for (int i = 0; timeline && i < SG_DICTIONARY_DEVICES; i++)
        sg_series_free(&timeline->series[i]);
    free(timeline);
}

/* Calls `put` with each sample of the device; returns how many there were. */
typedef void put_fn(FILE *out, uint32_t device, const struct sg_sample *sample);
static uint64_t each(const struct timeline *timeline, uint32_t device, FILE *out, put_fn *put)
{
    uint64_t count = 0;
    for (size_t i = 0; i < timeline->series[device].count; i++) {
        struct sg_sample sample[SG_BUCKET_SAMPLES];
        size_t samples = sg_series_samples(&timeline->series[device].bucket[i], sample);
        for (size_t k = 0; k < samples; k++)
            put(out, device, &sample[k]);
        count += samples;
    }
    return count;
}

static void counter(FILE *out, uint32_t device, uint64_t time_ns, const char *name, uint64_t value)
{
    fprintf(out,
        ",\n{\"ph\":\"C\",\"pid\":%" PRIu32 ",\"tid\":0,\"ts\":%" PRIu64
        ".%03d,\"name\":\"%s\",\"args\":{\"bytes\":%" PRIu64 "}}",
        device, time_ns / 1000, (int)(time_ns % 1000), name, value);
}

static void put_counters(FILE *out, uint32_t device, const struct sg_sample *sample)
{
    counter(out, device, sample->time_ns, "requested", sample->device.requested);
    if (!sample->device.knows_reserved)
        return;
    counter(out, device, sample->time_ns, "allocated", sample->device.allocated);
    counter(out, device, sample->time_ns, "reserved", sample->device.reserved);
}

static void put_failure(FILE *out, const struct failure *failure)
{
    char size[SG_SIZE_TEXT];
    fprintf(out,
        ",\n{\"ph\":\"i\",\"s\":\"p\",\"pid\":%" PRIu32 ",\"tid\":0,\"ts\":%" PRIu64 ".%03d,\"cat\":\"failure\","
        "\"name\":\"out of memory: %s\",\"args\":{\"bytes\":%" PRIu64,
        failure->device, failure->time_ns / 1000, (int)(failure->time_ns % 1000), sg_size_format(failure->bytes, size),
        failure->bytes);
    if (failure->lacked)
        fprintf(out, ",\"short_by_bytes\":%" PRIu64, failure->lacked);
    fputs("}}", out);
}

int sg_export_chrome(struct sg_trace_reader *reader, const struct sg_export_options *options, FILE *out,
                     struct sg_exported *ret)
{
    struct timeline *timeline;
    int error = read_timeline(reader, options, &timeline);
    if (!error) {
        fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"process_"
              "labels\","
              "\"args\":{\"labels\":",
            out);
        sg_tool_json_write(out, sg_trace_info(reader)->command);
        fputs("}}", out);
        for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++) {
            if (!timeline->series[i].count)
                continue;
            fprintf(out,
                ",\n{\"ph\":\"M\",\"pid\":%" PRIu32
                ",\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"device %" PRIu32 "\"}}",
                i, i);
            ret->shown += each(timeline, i, out, put_counters);
        }
        for (size_t i = 0; i < timeline->failures; i++)
            put_failure(out, &timeline->failure[i]);
        ret->events = timeline->events;
        fprintf(out,
            "\n],\"otherData\":{\"producer\":\"segalloc " SEGALLOC_VERSION "\",\"events\":%" PRIu64
            ",\"shown\":%" PRIu64 "}}\n",
            ret->events, ret->shown);
    }
    discard(timeline);
    return error;
}

static void put_row(FILE *out, uint32_t device, const struct sg_sample *sample)
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
        ret->shown += each(timeline, i, out, put_row);
    ret->events = error ? 0 : timeline->events;
    discard(timeline);
    return error;
}
