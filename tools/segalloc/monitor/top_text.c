#include "monitor/top.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "size.h"
#include "tool.h"

enum { FIGURES = 66 /* columns before the curves */, CURVE_LEAST = 6 };

static struct sg_top_history *find(const struct sg_top *top, uint64_t pid, uint32_t device)
{
    for (size_t i = 0; i < top->count; i++)
        if (top->history[i].pid == pid && top->history[i].device == device)
            return &top->history[i];
    return NULL;
}

static struct sg_top_history *new_history(struct sg_top *top)
{
    if (top->count == top->room) {
        size_t room = top->room ? 2 * top->room : 8;
        struct sg_top_history *larger = realloc(top->history, room * sizeof *larger);
        if (!larger)
            return NULL;
        top->history = larger;
        top->room = room;
    }
    return memset(&top->history[top->count++], 0, sizeof *top->history);
}

int sg_top_add(struct sg_top *top, const struct sg_live *live)
{
    for (size_t i = 0; i < top->count; i++)
        top->history[i].seen = false;
    for (size_t i = 0; i < live->count; i++) {
        for (uint32_t k = 0; k < live->file[i].count; k++) {
            const struct sg_stats_device *device = &live->file[i].devices[k];
            struct sg_top_history *history = find(top, live->file[i].pid, device->device);
            if (!history && !(history = new_history(top)))
                return -ENOMEM;
            history->pid = live->file[i].pid;
            history->device = device->device;
            history->seen = true;
            history->reserved[history->at] = device->stats.value[SG_STAT_reserved_bytes];
            history->requested[history->at] = device->stats.value[SG_STAT_requested_bytes];
            history->at = (history->at + 1) % SG_TOP_HISTORY;
            history->count += history->count < SG_TOP_HISTORY;
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < top->count; i++)
        if (top->history[i].seen)
            top->history[kept++] = top->history[i];
    top->count = kept;
    return 0;
}

void sg_top_free(struct sg_top *top)
{
    free(top->history);
    *top = (struct sg_top){0};
}

/* The latest samples, as heights from 0 to `most`, in `columns` columns; the newest on the right. */
static void put_curve(FILE *out, const struct sg_top_history *history, const uint64_t *sample, uint64_t most,
    int columns, bool unicode)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char ramp[] = " .:-=+*#@";
    for (int column = columns; column-- > 0;) {
        unsigned height = 0;
        if ((uint32_t)column < history->count && most) {
            uint64_t value = sample[(history->at + SG_TOP_HISTORY - 1 - (uint32_t)column) % SG_TOP_HISTORY];
            double share = (double)value / (double)most;
            height = value ? 1 + (unsigned)((share < 1 ? share : 1) * 7) : 0;
        }
        if (unicode)
            fputs(blocks[height], out);
        else
            putc(ramp[height], out);
    }
}

/* "1234567", or "1.2M" for a number of more columns. */
static void put_count(FILE *out, uint64_t count, int columns)
{
    static const char units[] = "kMGTPE";
    double value = (double)count;
    int unit = -1;
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, count);
    while ((int)strlen(text) > columns) {
        value /= 1000;
        snprintf(text, sizeof text, value < 10 ? "%.1f%c" : "%.0f%c", value, units[++unit]);
    }
    fprintf(out, "%*s", columns, text);
}

/* Cut to `width`; what a terminal would take for an order is shown as a question mark. */
static void put_clean(FILE *out, const char *text, int width)
{
    for (; *text && width > 0; text++, width--)
        putc((unsigned char)*text < ' ' || (unsigned char)*text >= 0x7f ? '?' : *text, out);
}

static uint64_t age_s(const struct sg_stats_file *file)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    return ns > file->end_realtime_ns ? (ns - file->end_realtime_ns) / 1000000000 : 0;
}

static uint64_t waits_of(const struct sg_stats *stats)
{
    return stats->value[SG_STAT_host_waits];
}

static void put_device(FILE *out, const struct sg_top *top, const struct sg_stats_file *file,
                       const struct sg_stats_device *device, int width, bool unicode)
{
    char reserved[SG_SIZE_TEXT], requested[SG_SIZE_TEXT], idle[SG_SIZE_TEXT];
    const struct sg_stats *stats = &device->stats;
    double used = sg_live_utilization(stats);
    fprintf(out, "%5" PRIu32 " %11s %11s %11s ", device->device,
        sg_size_format(stats->value[SG_STAT_reserved_bytes], reserved),
        sg_size_format(stats->value[SG_STAT_requested_bytes], requested), sg_size_format(sg_live_idle(stats), idle));
    if (used < 0)
        fputs("   - ", out);
    else
        fprintf(out, "%3.0f%% ", 100 * used);
    put_count(out, stats->value[SG_STAT_pages_moved], 5);
    putc(' ', out);
    put_count(out, waits_of(stats), 5);
    putc(' ', out);
    put_count(out, stats->value[SG_STAT_ooms], 5);
    int columns = (width - FIGURES) / 2;
    const struct sg_top_history *history = find(top, file->pid, device->device);
    if (history && columns >= CURVE_LEAST) {
        uint64_t most = stats->peak[SG_STAT_reserved_bytes];
        putc(' ', out);
        put_curve(out, history, history->reserved, most, columns, unicode);
        putc(' ', out);
        put_curve(out, history, history->requested, most, columns, unicode);
    }
    putc('\n', out);
}

void sg_top_text(FILE *out, const struct sg_top *top, const struct sg_live *live, int width, bool unicode)
{
    char text[128];
    int columns = (width - FIGURES) / 2;
    snprintf(text, sizeof text, "segalloc top: %zu process%s", live->count, live->count == 1 ? "" : "es");
    put_clean(out, text, width);
    putc('\n', out);
    if (!live->count)
        fputs("No process of yours keeps live statistics: start it with live:True.\n", out);
    else if (columns >= CURVE_LEAST)
        fprintf(out, "%5s %11s %11s %11s %4s %5s %5s %5s %-*.*s %.*s\n", "dev", "reserved", "requested", "idle", "used",
            "moves", "waits", "fails", columns, columns, "held", columns, "in use");
    else
        fprintf(out, "%5s %11s %11s %11s %4s %5s %5s %5s\n", "dev", "reserved", "requested", "idle", "used", "moves",
            "waits", "fails");
    for (size_t i = 0; i < live->count; i++) {
        const struct sg_stats_file *file = &live->file[i];
        int rank = sg_live_rank(file->pid);
        int length = rank < 0 ? snprintf(text, sizeof text, "%" PRIu64, file->pid)
                              : snprintf(text, sizeof text, "%" PRIu64 " rank %d", file->pid, rank);
        uint64_t age = age_s(file);
        if (age > 1)
            length += snprintf(text + length, sizeof text - (size_t)length, " (%" PRIu64 " s ago)", age);
        put_clean(out, text, width);
        if (length + 2 < width) {
            fputs("  ", out);
            put_clean(out, file->command ? file->command : "", width - length - 2);
        }
        putc('\n', out);
        for (uint32_t k = 0; k < file->count; k++)
            put_device(out, top, file, &file->devices[k], width, unicode);
    }
}

static void json_device(const struct sg_stats_device *device)
{
    static const enum sg_stat shown[] = {
        SG_STAT_reserved_bytes,
        SG_STAT_requested_bytes,
        SG_STAT_allocated_bytes,
        SG_STAT_pending_bytes,
        SG_STAT_pages_moved,
        SG_STAT_host_waits,
        SG_STAT_ooms,
    };
    const struct sg_stats *stats = &device->stats;
    printf("{\"device\":%" PRIu32 ",\"total_bytes\":%" PRIu64 ",\"limit_bytes\":%" PRIu64, device->device,
        device->total_bytes, device->limit_bytes);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        printf(",\"%s\":%" PRIu64, sg_stat_info(shown[i])->name, stats->value[shown[i]]);
    printf(",\"peak_reserved_bytes\":%" PRIu64 ",\"peak_requested_bytes\":%" PRIu64 ",\"idle_bytes\":%" PRIu64
           ",\"utilization\":",
        stats->peak[SG_STAT_reserved_bytes], stats->peak[SG_STAT_requested_bytes], sg_live_idle(stats));
    double used = sg_live_utilization(stats);
    if (used < 0)
        fputs("null}", stdout);
    else
        printf("%.6f}", used);
}

void sg_top_json(const struct sg_live *live)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("{\"schema\":\"segalloc.top/1\",\"realtime_ns\":%" PRIu64 ",\"processes\":[",
           (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
    for (size_t i = 0; i < live->count; i++) {
        const struct sg_stats_file *file = &live->file[i];
        int rank = sg_live_rank(file->pid);
        printf("%s{\"pid\":%" PRIu64 ",\"rank\":", i ? "," : "", file->pid);
        if (rank < 0)
            fputs("null", stdout);
        else
            printf("%d", rank);
        printf(",\"age_s\":%" PRIu64 ",\"command\":", age_s(file));
        sg_tool_json_string(file->command ? file->command : "");
        fputs(",\"devices\":[", stdout);
        for (uint32_t k = 0; k < file->count; k++) {
            if (k)
                putchar(',');
            json_device(&file->devices[k]);
        }
        fputs("]}", stdout);
    }
    puts("]}");
}
