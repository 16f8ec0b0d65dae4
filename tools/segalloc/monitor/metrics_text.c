#include "monitor/metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/nvml.h"
#include "stats.h"

enum { NAME = 128, COMMAND_SHOWN = 120 };

/* Text as a label may hold it: with its three escapes, and no half of a character. */
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

/* The last part of the path that a word is. */
static const char *base_of(const char *word)
{
    const char *slash = strrchr(word, '/');
    return slash && slash[1] ? slash + 1 : word;
}

/* The program, without its arguments, which may be secrets and differ from run to run: "segalloc-train", "python
   train.py", "python -m torch.distributed.run". */
static void put_program(FILE *out, const char *command)
{
    char text[COMMAND_SHOWN * 4], *rest = text;
    snprintf(text, sizeof text, "%s", command);
    const char *word = strsep(&rest, " ");
    word = base_of(word);
    bool python = strncmp(word, "python", 6) == 0;
    put_label(out, word);
    while (python && (word = strsep(&rest, " ")) != NULL) {
        bool module = strcmp(word, "-m") == 0;
        if (strcmp(word, "-c") == 0)
            return; /* the program is an argument */
        if (module && rest) {
            fputs(" -m ", out);
            put_label(out, strsep(&rest, " "));
            return;
        }
        if (*word && *word != '-') {
            putc(' ', out);
            put_label(out, base_of(word));
            return;
        }
    }
}

static void put_heading(FILE *out, const char *name, const char *text, const char *more, bool counter)
{
    fprintf(out, "# HELP %s %s%s\n# TYPE %s %s\n", name, text, more, name, counter ? "counter" : "gauge");
}

typedef double value_fn(const struct sg_stats_device *device, int stat);

/* Labels join with those of NVIDIA's DCGM exporter by `gpu` and `UUID`; by the latter alone where CUDA_VISIBLE_DEVICES
   gives a process numbers of its own. */
static void put_values(FILE *out, const char *name, const struct sg_live *live, const int *rank, value_fn *value, int stat)
{
    for (size_t i = 0; i < live->count; i++) {
        const struct sg_stats_file *file = &live->file[i];
        for (uint32_t k = 0; k < file->count; k++) {
            fprintf(out, "%s{pid=\"%" PRIu64 "\",device=\"%" PRIu32 "\",gpu=\"%" PRIu32 "\",UUID=\"", name, file->pid,
                file->devices[k].device, file->devices[k].device);
            put_label(out, file->devices[k].uuid);
            fputs("\",model=\"", out);
            put_label(out, file->devices[k].model);
            fputs("\",rank=\"", out);
            if (rank[i] >= 0)
                fprintf(out, "%d", rank[i]);
            fputs("\",command=\"", out);
            put_program(out, file->command ? file->command : "");
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

/* One gauge of all devices that NVML has. The field is left out where it is not known, which is below 0. */
static void put_nvml_gauge(FILE *out, const struct sg_nvml_device *device, unsigned count, const char *name,
    const char *text, double (*value)(const struct sg_nvml_device *device))
{
    put_heading(out, name, text, "", false);
    for (unsigned i = 0; i < count; i++) {
        if (value(&device[i]) < 0)
            continue;
        fprintf(out, "%s{gpu=\"%u\",UUID=\"", name, device[i].index);
        put_label(out, device[i].uuid);
        fprintf(out, "\"} %.17g\n", value(&device[i]));
    }
}

static double nvml_total_of(const struct sg_nvml_device *device)
{
    return device->total_bytes ? (double)device->total_bytes : -1;
}

static double nvml_used_of(const struct sg_nvml_device *device)
{
    return device->total_bytes ? (double)device->used_bytes : -1;
}

static double nvml_busy_of(const struct sg_nvml_device *device)
{
    return device->busy_percent < 0 ? -1 : device->busy_percent / 100.0;
}

/* NVML's figures of the machine's devices, where it is there. */
static void put_nvml(FILE *out)
{
    struct sg_nvml_device device[SG_NVML_DEVICES];
    unsigned count = sg_nvml_read(device);
    if (!count)
        return;
    put_nvml_gauge(out, device, count, "segalloc_nvml_memory_total_bytes", "memory of the device, by NVML",
        nvml_total_of);
    put_nvml_gauge(out, device, count, "segalloc_nvml_memory_used_bytes",
        "memory of the device that anybody uses, by NVML", nvml_used_of);
    put_nvml_gauge(out, device, count, "segalloc_nvml_busy_ratio",
        "share of time in which a kernel ran lately, by NVML", nvml_busy_of);
}

void sg_metrics_write(FILE *out, const struct sg_live *live)
{
    char name[NAME];
    int *rank = calloc(live->count + 1, sizeof *rank);
    if (!rank)
        abort(); /* a few bytes */
    for (size_t i = 0; i < live->count; i++)
        rank[i] = sg_live_rank(live->file[i].pid);
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        const struct sg_stat_info *info = sg_stat_info((enum sg_stat)i);
        size_t length = strlen(info->name);
        bool time = length > 3 && strcmp(info->name + length - 3, "_ns") == 0;
        if (info->kind == SG_STAT_COUNTER) {
            counter_name(info->name, time, name);
            put_heading(out, name, info->text, "", true);
            put_values(out, name, live, rank, time ? seconds_of : value_of, i);
            continue;
        }
        snprintf(name, sizeof name, "segalloc_%s", info->name);
        put_heading(out, name, info->text, "", false);
        put_values(out, name, live, rank, value_of, i);
        snprintf(name, sizeof name, "segalloc_peak_%s", info->name);
        put_heading(out, name, info->text, ", at its peak", false);
        put_values(out, name, live, rank, peak_of, i);
    }
    put_heading(out, "segalloc_device_bytes", "memory of the device", "", false);
    put_values(out, "segalloc_device_bytes", live, rank, total_of, 0);
    put_heading(out, "segalloc_limit_bytes", "what may be held of the device, 0 for no limit", "", false);
    put_values(out, "segalloc_limit_bytes", live, rank, limit_of, 0);
    put_heading(out, "segalloc_processes", "processes that keep live statistics", "", false);
    fprintf(out, "segalloc_processes %zu\n", live->count);
    put_nvml(out);
    free(rank);
}
