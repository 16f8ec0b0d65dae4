#include "monitor/metrics.h"

#include <inttypes.h>
#include <string.h>

#include "stats.h"

enum { NAME = 128, COMMAND_SHOWN = 120 };

/* What a label may hold: its three escapes, and no half of a character. */
static void put_label(FILE *out, const char *text)
{
    for (size_t i = 0; text[i] && i < COMMAND_SHOWN; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else
            putc(c < ' ' || c >= 0x7f ? '?' : c, out);
    }
}

static void put_heading(FILE *out, const char *name, const char *text, const char *more, bool counter)
{
    fprintf(out, "# HELP %s %s%s\n# TYPE %s %s\n", name, text, more, name, counter ? "counter" : "gauge");
}

typedef double value_fn(const struct sg_stats_device *device, int stat);

static void put_values(FILE *out, const char *name, const struct sg_live *live, value_fn *value, int stat)
{
    for (size_t i = 0; i < live->count; i++) {
        const struct sg_stats_file *file = &live->file[i];
        for (uint32_t k = 0; k < file->count; k++) {
            fprintf(out, "%s{pid=\"%" PRIu64 "\",device=\"%" PRIu32 "\",command=\"", name, file->pid,
                file->devices[k].device);
            put_label(out, file->command ? file->command : "");
            fprintf(out, "\"} %.17g\n", value(&file->devices[k], stat));
        }
    }
}

static double value_of(const struct sg_stats_device *device, int stat)
{
    return (double)device->stats.value[stat];
}

static double peak_of(const struct sg_stats_device *device, int stat)
{
    return (double)device->stats.peak[stat];
}

static double seconds_of(const struct sg_stats_device *device, int stat)
{
    return (double)device->stats.value[stat] / 1e9;
}

static double total_of(const struct sg_stats_device *device, int stat)
{
    (void)stat;
    return (double)device->total_bytes;
}

static double limit_of(const struct sg_stats_device *device, int stat)
{
    (void)stat;
    return (double)device->limit_bytes;
}

/* The name of a counter: its unit, then _total. */
static void counter_name(const char *stat, bool time, char name[NAME])
{
    char base[NAME];
    snprintf(base, sizeof base, "%s", stat);
    char *total = strstr(base, "_total_bytes");
    if (total)
        memmove(total, total + strlen("_total"), strlen(total + strlen("_total")) + 1);
    if (time)
        base[strlen(base) - strlen("_ns")] = '\0';
    snprintf(name, NAME, "segalloc_%.80s%s_total", base, time ? "_seconds" : "");
}

void sg_metrics_write(FILE *out, const struct sg_live *live)
{
    char name[NAME];
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        const struct sg_stat_info *info = sg_stat_info((enum sg_stat)i);
        size_t length = strlen(info->name);
        bool time = length > 3 && strcmp(info->name + length - 3, "_ns") == 0;
        if (info->kind == SG_STAT_COUNTER) {
            counter_name(info->name, time, name);
            put_heading(out, name, info->text, "", true);
            put_values(out, name, live, time ? seconds_of : value_of, i);
            continue;
        }
        snprintf(name, sizeof name, "segalloc_%s", info->name);
        put_heading(out, name, info->text, "", false);
        put_values(out, name, live, value_of, i);
        snprintf(name, sizeof name, "segalloc_peak_%s", info->name);
        put_heading(out, name, info->text, ", at its peak", false);
        put_values(out, name, live, peak_of, i);
    }
    put_heading(out, "segalloc_device_bytes", "memory of the device", "", false);
    put_values(out, "segalloc_device_bytes", live, total_of, 0);
    put_heading(out, "segalloc_limit_bytes", "what may be held of the device, 0 for no limit", "", false);
    put_values(out, "segalloc_limit_bytes", live, limit_of, 0);
    put_heading(out, "segalloc_processes", "processes that keep live statistics", "", false);
    fprintf(out, "segalloc_processes %zu\n", live->count);
}
