#include "json.h"
#include "monitor/top.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "monitor/nvml.h"
#include "size.h"

enum {
    FIGURES = 67 /* columns before the curves */,
    CURVE_LEAST = 6,
    LINE = 512,
    UUID_SHOWN = 12 /* "GPU-" and eight digits */
};

static struct sg_top_history *top_find_history(const struct sg_top *top, uint64_t pid, uint32_t device)
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
            struct sg_top_history *history = top_find_history(top, live->file[i].pid, device->device);
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

/* "20.5 GiB", "790 MiB": of at most eight columns. */
static void put_size(FILE *out, uint64_t bytes, int columns)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1023.5 && unit < 6) {
        value /= 1024;
        unit++;
    }
    char text[32];
    snprintf(text, sizeof text, "%.*f %s", !unit || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, value, units[unit]);
    fprintf(out, "%*s", columns, text);
}

static bool is_text(const char *text)
{
    return text && *text;
}

/* Processes that run the same command, side by side, by their ranks. */
struct row {
    const struct sg_stats_file *file;
    int rank; /* negative: none */
};

static int by_group(const void *a, const void *b)
{
    const struct row *one = a, *other = b;
    int order = strcmp(one->file->command ? one->file->command : "", other->file->command ? other->file->command : "");
    if (!order)
        order = (one->rank > other->rank) - (one->rank < other->rank);
    return order ? order : (one->file->pid > other->file->pid) - (one->file->pid < other->file->pid);
}

static bool top_same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* The words of a command without the folders of paths, cut to a terminal's line. */
static void put_command(FILE *out, const char *command, int width)
{
    char text[LINE];
    size_t used = 0;
    for (const char *at = command; *at && used < sizeof text - 1;) {
        size_t word = strcspn(at, " ");
        const char *name = at;
        for (size_t i = 0; i + 1 < word; i++)
            if (at[i] == '/')
                name = at + i + 1;
        size_t length = word - (size_t)(name - at), room = sizeof text - 1 - used;
        memcpy(text + used, name, length < room ? length : room);
        used += length < room ? length : room;
        at += word;
        if (*at == ' ' && used < sizeof text - 1) {
            text[used++] = ' ';
            at++;
        }
    }
    text[used] = '\0';
    put_clean(out, text, width);
    putc('\n', out);
}

/* A group's words besides its figures, on one line: those of the process in its first row. */
static void put_tags(FILE *out, const struct row *row, int width)
{
    char text[LINE], card[SG_SIZE_TEXT];
    const struct sg_stats_file *file = row->file;
    const struct sg_stats_device *device = file->count ? &file->devices[0] : NULL;
    uint64_t bytes = !device ? 0 : device->limit_bytes ? device->limit_bytes : device->total_bytes;
    int used = 0;
    text[0] = '\0';
    if (bytes)
        used += snprintf(text + used, sizeof text - (size_t)used, ", %s %s", device->limit_bytes ? "limit" : "card",
            sg_size_format(bytes, card));
    if (is_text(file->pytorch))
        used += snprintf(text + used, sizeof text - (size_t)used, ", PyTorch %.40s", file->pytorch);
    if (is_text(file->untracked_by))
        used += snprintf(text + used, sizeof text - (size_t)used, ", order lost by %.40s", file->untracked_by);
    if (is_text(file->phase))
        used += snprintf(text + used, sizeof text - (size_t)used, ", in %.200s", file->phase);
    if (used < 2)
        return;
    fputs("  ", out);
    put_clean(out, text + 2, width - 2);
    putc('\n', out);
}

static void top_put_device(FILE *out, const struct sg_top *top, const struct row *row,
    const struct sg_stats_device *device, int width, bool unicode)
{
    const struct sg_stats *stats = &device->stats;
    double used = sg_live_utilization(stats);
    char rank[16] = "-";
    if (row->rank >= 0)
        snprintf(rank, sizeof rank, "%d", row->rank);
    fprintf(out, "%4s %7" PRIu64 " %3" PRIu32 " ", rank, row->file->pid, device->device);
    put_size(out, stats->value[SG_STAT_reserved_bytes], 8);
    putc(' ', out);
    put_size(out, stats->value[SG_STAT_requested_bytes], 9);
    putc(' ', out);
    put_size(out, sg_live_idle(stats), 8);
    if (used < 0)
        fputs("    - ", out);
    else
        fprintf(out, " %3.0f%% ", 100 * used);
    put_count(out, stats->value[SG_STAT_pages_moved], 5);
    putc(' ', out);
    put_count(out, waits_of(stats), 5);
    putc(' ', out);
    put_count(out, stats->value[SG_STAT_ooms], 5);
    int columns = (width - FIGURES) / 2;
    const struct sg_top_history *history = top_find_history(top, row->file->pid, device->device);
    if (history && columns >= CURVE_LEAST) {
        uint64_t most = stats->peak[SG_STAT_reserved_bytes];
        putc(' ', out);
        put_curve(out, history, history->reserved, most, columns - 1, unicode);
        putc(' ', out);
        put_curve(out, history, history->requested, most, columns - 1, unicode);
    }
    putc('\n', out);
}

/* True if processes have one number for different cards, as where each rank sees one device (CUDA_VISIBLE_DEVICES). */
static bool is_ambiguous(const struct sg_live *live, const struct sg_stats_device *device)
{
    for (size_t i = 0; i < live->count; i++) {
        for (uint32_t k = 0; k < live->file[i].count; k++) {
            const struct sg_stats_device *other = &live->file[i].devices[k];
            if (other->device == device->device && *device->uuid && *other->uuid &&
                strncmp(other->uuid, device->uuid, UUID_SHOWN) != 0)
                return true;
        }
    }
    return false;
}

/* Which card a number means, where that is not the same for all. */
static void put_card(FILE *out, const struct sg_live *live, const struct sg_stats_device *device)
{
    if (is_ambiguous(live, device))
        fprintf(out, "%12s device %" PRIu32 " is %.*s\n", "", device->device, UUID_SHOWN, device->uuid);
}

/* The difference of a process from the first of its group: an old page, another phase. */
static void put_note(FILE *out, const struct row *row, const struct row *first, int width)
{
    char text[LINE];
    uint64_t age = age_s(row->file);
    bool apart = row != first && !top_same_text(row->file->phase, first->file->phase);
    if (age <= 1 && !apart)
        return;
    int used = snprintf(text, sizeof text, "%12s ", "");
    if (age > 1)
        used += snprintf(text + used, sizeof text - (size_t)used, "(%" PRIu64 " s ago)%s", age, apart ? " " : "");
    if (apart)
        snprintf(text + used, sizeof text - (size_t)used, "in %.200s",
            is_text(row->file->phase) ? row->file->phase : "no phase");
    put_clean(out, text, width);
    putc('\n', out);
}

static void put_headings(FILE *out, int width)
{
    int columns = (width - FIGURES) / 2;
    fprintf(out, "%4s %7s %3s %8s %9s %8s %4s %5s %5s %5s", "rank", "pid", "dev", "reserved", "requested", "idle",
        "used", "moves", "waits", "fails");
    if (columns >= CURVE_LEAST)
        fprintf(out, " %-*.*s %.*s", columns - 1, columns - 1, "held", columns - 1, "asked for");
    putc('\n', out);
}

static void put_totals(FILE *out, const struct sg_live *live, int width)
{
    char text[LINE], reserved[SG_SIZE_TEXT], requested[SG_SIZE_TEXT];
    uint64_t held = 0, asked = 0;
    for (size_t i = 0; i < live->count; i++) {
        for (uint32_t k = 0; k < live->file[i].count; k++) {
            held += live->file[i].devices[k].stats.value[SG_STAT_reserved_bytes];
            asked += live->file[i].devices[k].stats.value[SG_STAT_requested_bytes];
        }
    }
    int used = snprintf(text, sizeof text, "segalloc top: %zu process%s", live->count, live->count == 1 ? "" : "es");
    if (live->count)
        snprintf(text + used, sizeof text - (size_t)used, ", %s reserved, %s requested", sg_size_format(held, reserved),
            sg_size_format(asked, requested));
    put_clean(out, text, width);
    putc('\n', out);
}

/* A line for each device that NVML has figures of. */
static void put_nvml_lines(FILE *out, int width)
{
    struct sg_nvml_device device[SG_NVML_DEVICES];
    unsigned count = sg_nvml_read(device);
    for (unsigned i = 0; i < count; i++) {
        char text[LINE], used[SG_SIZE_TEXT], total[SG_SIZE_TEXT];
        int length = snprintf(text, sizeof text, "NVML %u %.*s", device[i].index, UUID_SHOWN, device[i].uuid);
        if (device[i].total_bytes)
            length += snprintf(text + length, sizeof text - (size_t)length, ": %s of %s in use by anybody",
                sg_size_format(device[i].used_bytes, used), sg_size_format(device[i].total_bytes, total));
        if (device[i].busy_percent >= 0)
            snprintf(text + length, sizeof text - (size_t)length, ", busy %d %%", device[i].busy_percent);
        put_clean(out, text, width);
        putc('\n', out);
    }
}

void sg_top_text(FILE *out, const struct sg_top *top, const struct sg_live *live, int width, bool unicode)
{
    put_totals(out, live, width);
    struct row *row = live->count ? calloc(live->count, sizeof *row) : NULL;
    if (!row) {
        fputs(live->count ? "out of memory\n" : "No process of yours keeps live statistics. One that does: segalloc run -c live:True -- CMD\n",
            out);
        return;
    }
    put_headings(out, width);
    for (size_t i = 0; i < live->count; i++)
        row[i] = (struct row){&live->file[i], sg_live_rank(live->file[i].pid)};
    qsort(row, live->count, sizeof *row, by_group);
    const struct row *first = NULL;
    for (size_t i = 0; i < live->count; i++) {
        if (!first || !top_same_text(first->file->command, row[i].file->command)) {
            first = &row[i];
            put_command(out, first->file->command ? first->file->command : "", width);
            put_tags(out, first, width);
        }
        for (uint32_t k = 0; k < row[i].file->count; k++) {
            top_put_device(out, top, &row[i], &row[i].file->devices[k], width, unicode);
            put_card(out, live, &row[i].file->devices[k]);
        }
        put_note(out, &row[i], first, width);
    }
    put_nvml_lines(out, width);
    free(row);
}

static json_t *top_json_device(const struct sg_stats_device *device)
{
    static const enum sg_stat shown[] = {
        SG_STAT_reserved_bytes,
        SG_STAT_requested_bytes,
        SG_STAT_allocated_bytes,
        SG_STAT_pending_bytes,
        SG_STAT_pages_moved,
        SG_STAT_host_waits,
        SG_STAT_device_waits,
        SG_STAT_ooms,
    };
    const struct sg_stats *stats = &device->stats;
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"device", device->device});
    sg_json_set_text(result, "uuid", *device->uuid ? device->uuid : NULL);
    SG_JSON_NUMBERS(result, {"total_bytes", device->total_bytes}, {"limit_bytes", device->limit_bytes});
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        sg_json_set(result, sg_stat_info(shown[i])->name, sg_json_number(stats->value[shown[i]]));
    SG_JSON_NUMBERS(result, {"peak_reserved_bytes", stats->peak[SG_STAT_reserved_bytes]},
        {"peak_requested_bytes", stats->peak[SG_STAT_requested_bytes]}, {"idle_bytes", sg_live_idle(stats)});
    sg_json_set_ratio(result, "utilization", sg_live_utilization(stats));
    return result;
}

static json_t *top_json_process(const struct sg_stats_file *file)
{
    int rank = sg_live_rank(file->pid);
    json_t *process = sg_json_object(NULL), *devices = sg_json_array();
    SG_JSON_NUMBERS(process, {"pid", file->pid});
    sg_json_set_known(process, "rank", (uint64_t)rank, rank >= 0);
    SG_JSON_NUMBERS(process, {"age_s", age_s(file)});
    sg_json_set_text(process, "command", file->command ? file->command : "");
    sg_json_set_text(process, "phase", is_text(file->phase) ? file->phase : NULL);
    sg_json_set_text(process, "pytorch", is_text(file->pytorch) ? file->pytorch : NULL);
    sg_json_set_text(process, "untracked_by", is_text(file->untracked_by) ? file->untracked_by : NULL);
    for (uint32_t i = 0; i < file->count; i++)
        sg_json_add(devices, top_json_device(&file->devices[i]));
    sg_json_set(process, "devices", devices);
    return process;
}

void sg_top_json(const struct sg_live *live)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    json_t *result = sg_json_object("segalloc.top/1"), *processes = sg_json_array();
    SG_JSON_NUMBERS(result, {"realtime_ns", (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec});
    for (size_t i = 0; i < live->count; i++)
        sg_json_add(processes, top_json_process(&live->file[i]));
    sg_json_set(result, "processes", processes);
    sg_json_set(result, "nvml", sg_nvml_json());
    sg_json_print(result);
}
