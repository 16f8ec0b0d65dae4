#include "analysis/trace_info.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "size.h"
#include "tool.h"

static const char *end_name(enum sg_trace_end end)
{
    static const char *const names[] = {"open", "closed", "killed", "cut", "damaged"};
    return names[end];
}

static uint64_t info_total(const struct sg_summary *summary, const uint64_t *of_first)
{
    size_t offset = (size_t)((const char *)of_first - (const char *)summary->device);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < summary->devices; i++)
        sum += *(const uint64_t *)(const void *)((const char *)&summary->device[i] + offset);
    return sum;
}

/* Definitions may be repeated, and indices left out. */
static uint64_t info_count_streams(const struct sg_summary *summary)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < summary->dictionary.streams; i++)
        count += summary->dictionary.stream[i].known;
    return count;
}

static uint64_t info_count_threads(const struct sg_summary *summary)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < summary->dictionary.threads; i++)
        count += summary->dictionary.thread[i].known;
    return count;
}

/* Memory that the order of the work makes the program hold; null for a trace without work on several streams. */
static json_t *order_json(const struct sg_summary *summary)
{
    static const char *const names[] = {[SG_BOUND_ALL] = "all_blocks", [SG_BOUND_LARGE] = "blocks_from_1MiB"};
    json_t *bounds = NULL;
    for (int i = 0; i < SG_BOUND_COUNT; i++) {
        struct sg_bound_result result = sg_bound_result(summary->bound[i]);
        if (!result.ordered || !result.live_bytes)
            continue;
        json_t *bound = sg_json_object(NULL);
        SG_JSON_NUMBERS(bound, {"peak_live_bytes", result.live_bytes}, {"peak_held_bytes", result.pool_bytes});
        sg_json_set_ratio(bound, "ratio", (double)result.pool_bytes / (double)result.live_bytes);
        bounds = bounds ? bounds : sg_json_object(NULL);
        sg_json_set(bounds, names[i], bound);
    }
    return bounds ? bounds : json_null();
}

static void order_text(const struct sg_summary *summary)
{
    char held[SG_SIZE_TEXT];
    struct sg_bound_result all = sg_bound_result(summary->bound[SG_BOUND_ALL]),
                           large = sg_bound_result(summary->bound[SG_BOUND_LARGE]);
    if (!all.ordered || !all.live_bytes)
        return;
    printf("%-12s %s, %.4f x live, by the order of the work alone", "held at peak",
        sg_size_format(all.pool_bytes, held), (double)all.pool_bytes / (double)all.live_bytes);
    if (large.live_bytes)
        printf(" (%.4f x of blocks from 1 MiB)", (double)large.pool_bytes / (double)large.live_bytes);
    putchar('\n');
}

static json_t *kinds_json(const struct sg_summary *summary)
{
    json_t *kinds = sg_json_object(NULL);
    for (unsigned i = 0; i < 256; i++) {
        char unknown[24];
        const char *name = sg_record_kind_name(i);
        snprintf(unknown, sizeof unknown, "kind_%u", i);
        if (summary->kind[i])
            sg_json_set(kinds, name ? name : unknown, sg_json_number(summary->kind[i]));
    }
    return kinds;
}

static json_t *device_json(const struct sg_summary_device *device, uint32_t ordinal)
{
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"device", ordinal});
    sg_json_set_text(result, "model", *device->model ? device->model : NULL);
    SG_JSON_NUMBERS(result, {"total_bytes", device->total_bytes}, {"granularity_bytes", device->granularity},
        {"limit_bytes", device->limit_bytes}, {"allocs", device->allocs}, {"frees", device->frees},
        {"peak_requested_bytes", device->peak_live_bytes}, {"largest_request_bytes", device->largest_request},
        {"failures", device->failures}, {"failed_largest_bytes", device->failed_largest});
    return result;
}

void sg_trace_info_json(const char *input, const struct sg_trace_info *info, const struct sg_summary *summary)
{
    const struct sg_summary_device *first = summary->device;
    json_t *result = sg_json_object("segalloc.trace-info/1"), *devices = sg_json_array();
    sg_json_set_text(result, "trace", input);
    sg_json_set_text(result, "format", info->format);
    sg_json_set_flag(result, "compressed", info->compressed);
    sg_json_set_text(result, "end", end_name(info->end));
    sg_json_set_flag(result, "truncated", info->end_text);
    sg_json_set_text(result, "end_text", info->end_text);
    sg_json_set_text(result, "begin_text", info->begin_text);
    SG_JSON_NUMBERS(result, {"records", info->records}, {"events", summary->events}, {"dropped", info->dropped},
        {"allocs", info_total(summary, &first->allocs)}, {"frees", info_total(summary, &first->frees)},
        {"peak_requested_bytes", summary->peak_live_bytes}, {"end_requested_bytes", summary->live_bytes},
        {"unmatched_frees", summary->unmatched_frees}, {"repeated_addresses", summary->repeated},
        {"duration_ns", summary->events ? summary->last_ns - summary->first_ns : 0},
        {"start_realtime_ns", info->header.start_realtime_ns}, {"pid", info->header.pid},
        {"streams", info_count_streams(summary)}, {"threads", info_count_threads(summary)});
    sg_json_set(result, "order_bound", order_json(summary));
    sg_json_set(result, "kinds", kinds_json(summary));
    for (uint32_t i = 0; i < summary->devices; i++)
        if (summary->device[i].used)
            sg_json_add(devices, device_json(&summary->device[i], i));
    sg_json_set(result, "devices", devices);
    sg_json_set_text(result, "conf", info->conf);
    sg_json_set_text(result, "command", info->command);
    sg_json_print(result);
}

static void print_failures(const struct sg_summary *summary)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT];
    for (uint64_t i = 0; i < summary->failures && i < SG_FAILURES_KEPT; i++) {
        const struct sg_summary_failure *failure = &summary->failure[i];
        printf("%-12s event %" PRIu64 ", device %" PRIu32 ": %s asked for with %s in use", i ? "" : "failed",
            failure->event, failure->device, sg_size_format(failure->bytes, a), sg_size_format(failure->live_bytes, b));
        printf("%s%s\n", failure->short_by ? ", short by " : "",
            failure->short_by ? sg_size_format(failure->short_by, c) : "");
    }
}

static void info_print_text(const char *name, const char *text)
{
    printf("%-12s ", name);
    sg_tool_print_plain(text);
    putchar('\n');
}

void sg_trace_info_text(const struct sg_trace_info *info, const struct sg_summary *summary)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT];
    const struct sg_summary_device *first = summary->device;
    bool csv = !strcmp(info->format, "rmm-csv"), snapshot = !strcmp(info->format, "pytorch-snapshot");
    printf("%-12s %s%s%s\n", "format",
        csv        ? "RMM's CSV"
        : snapshot ? "PyTorch's memory snapshot"
                   : "segalloc's trace",
        info->header.imported && !csv && !snapshot ? ", imported" : "", info->compressed ? ", zstd" : "");
    if (info->begin_text)
        printf("%-12s %s\n", "beginning", info->begin_text);
    printf("%-12s %s\n", "end",
        !info->end_text                                 ? "complete"
        : sg_tool_runs(info->header.pid, info->command) ? "the program is still running"
                                                        : info->end_text);
    if (info->dropped)
        printf("%-12s %" PRIu64 " event%s, by the writer\n", "lost", info->dropped, sg_plural(info->dropped));
    printf("%-12s %" PRIu64 " in %.3f s\n", "events", summary->events,
        summary->events ? (double)(summary->last_ns - summary->first_ns) / 1e9 : 0.);
    for (unsigned i = 0; i < SEGALLOC_RECORD_DEFINE_STREAM; i++)
        if (summary->kind[i] && i != SEGALLOC_RECORD_END) {
            const char *name = sg_record_kind_name(i);
            char number[24];
            snprintf(number, sizeof(number), "kind %u", i);
            printf("  %-18s %12" PRIu64 "\n", name ? name : number, summary->kind[i]);
        }
    printf("%-12s %" PRIu64 "\n%-12s %" PRIu64 "\n", "streams", info_count_streams(summary), "threads",
        info_count_threads(summary));
    printf("%-12s %s (%" PRIu64 " bytes)\n", "live at peak", sg_size_format(summary->peak_live_bytes, a),
        summary->peak_live_bytes);
    order_text(summary);
    printf("%-12s %s in %" PRIu64 " block%s\n", "at the end", sg_size_format(summary->live_bytes, a),
        info_total(summary, &first->live_blocks), sg_plural(info_total(summary, &first->live_blocks)));
    uint64_t largest = 0;
    for (uint32_t i = 0; i < summary->devices; i++)
        largest = summary->device[i].largest_request > largest ? summary->device[i].largest_request : largest;
    printf("%-12s %s\n", "largest", sg_size_format(largest, a));
    print_failures(summary);
    if (summary->unmatched_frees)
        printf("%-12s %" PRIu64 " of what was not allocated in this trace\n", "frees", summary->unmatched_frees);
    if (summary->repeated)
        printf("%-12s %" PRIu64 " at addresses that were in use: the trace contradicts itself\n", "allocations",
            summary->repeated);
    for (uint32_t i = 0; i < summary->devices; i++) {
        const struct sg_summary_device *device = &summary->device[i];
        if (!device->used || !device->total_bytes)
            continue;
        printf("device %-5u %s%s%s, granule %s", i, device->model, *device->model ? ", " : "",
            sg_size_format(device->total_bytes, a), sg_size_format(device->granularity, b));
        if (device->limit_bytes)
            printf(", limit %s", sg_size_format(device->limit_bytes, c));
        putchar('\n');
    }
    if (info->header.pid)
        printf("%-12s %" PRIu64 "\n", "process", info->header.pid);
    if (*info->command)
        info_print_text("command", info->command);
    if (!info->header.imported)
        info_print_text("conf", *info->conf ? info->conf : "defaults");
}
