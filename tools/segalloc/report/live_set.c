/* The holders of the memory: groups of blocks, the map of pages, and the levels over time, in 80 columns. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"
#include "size.h"

static bool has_several_streams(const struct sg_live_set *set)
{
    bool several = false;
    for (uint32_t i = 1; i < set->rows; i++)
        several = several || set->row[i].key.stream != set->row[0].key.stream;
    return several;
}

/* Where the program asked for the blocks of a group, and what it was doing, on a line below it; nothing where that is
   not known. */
static void print_place(const struct sg_findings *findings, const struct sg_live_key *key)
{
    char site[SG_SITE_TEXT], phase[SG_SITE_TEXT];
    sg_site_book_line(&findings->book, key->site, site);
    sg_site_book_phase(&findings->book, key->phase, phase);
    if (*site || *phase)
        printf("  %14s%s%s%s\n", "", site, *site && *phase ? ", in " : "", phase);
}

void sg_report_live(const struct sg_findings *findings, const char *heading, const struct sg_live_set *set)
{
    enum { ROWS = 12 };
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    bool streams = has_several_streams(set);
    uint64_t bytes = 0, blocks = 0;
    if (!set->rows)
        return;
    printf("\n%s\n  %12s %8s %12s %12s%s\n", heading, "", "blocks", "on average", "mean age", streams ? "  stream" : "");
    for (uint32_t i = 0; i < set->rows; i++) {
        const struct sg_live_row *row = &set->row[i];
        if (i >= ROWS) {
            bytes += row->bytes;
            blocks += row->blocks;
            continue;
        }
        printf("  %12s %8" PRIu64 " %12s %12" PRIu64, sg_size_format(row->bytes, a), row->blocks,
               sg_size_format(row->bytes / row->blocks, b), row->age);
        if (streams)
            printf("  0x%" PRIx64, row->key.stream);
        putchar('\n');
        print_place(findings, &row->key);
    }
    if (blocks)
        printf("  %12s %8" PRIu64 " in %" PRIu32 " smaller group%s\n", sg_size_format(bytes, a), blocks,
            set->rows - ROWS, sg_plural(set->rows - ROWS));
    puts("  (age in allocations of the device)");
}

/* Blocks that one line asked for; those without a line are put together by size. */
struct line_row {
    uint32_t site, size_class; /* 0: not by this */
    uint64_t bytes, blocks;
};

static int live_set_by_bytes(const void *a, const void *b)
{
    const struct line_row *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : x->site < y->site ? -1 : x->site > y->site;
}

/* A live set by line into `ret`, the largest first; how many there are. */
static size_t lines_of(const struct sg_findings *findings, const struct sg_live_set *set, struct line_row *ret)
{
    size_t count = 0;
    for (uint32_t i = 0; i < set->rows; i++) {
        const struct sg_live_row *row = &set->row[i];
        uint32_t site = sg_site_book_shown(&findings->book, row->key.site), class = site ? 0 : row->key.size_class;
        size_t k = 0;
        while (k < count && (ret[k].site != site || ret[k].size_class != class))
            k++;
        if (k == count)
            ret[count++] = (struct line_row){.site = site, .size_class = class};
        ret[k].bytes += row->bytes;
        ret[k].blocks += row->blocks;
    }
    qsort(ret, count, sizeof *ret, live_set_by_bytes);
    return count;
}

void sg_report_lines(const struct sg_findings *findings, const char *heading, const struct sg_live_set *set)
{
    enum { ROWS = 10 };
    char size[SG_SIZE_TEXT], each[SG_SIZE_TEXT], place[SG_SITE_TEXT];
    struct line_row *row = set->rows ? calloc(set->rows, sizeof *row) : NULL;
    size_t count = row ? lines_of(findings, set, row) : 0;
    uint64_t bytes = 0, blocks = 0;
    if (count)
        printf("\n%s\n", heading);
    for (size_t i = 0; i < count; i++) {
        if (i >= ROWS) {
            bytes += row[i].bytes;
            blocks += row[i].blocks;
            continue;
        }
        printf("  %12s in %" PRIu64 " block%s, ", sg_size_format(row[i].bytes, size), row[i].blocks, sg_plural(row[i].blocks));
        if (row[i].site)
            puts(sg_site_book_line(&findings->book, row[i].site, place));
        else
            printf("%s on average\n", sg_size_format(row[i].bytes / row[i].blocks, each));
    }
    if (blocks)
        printf("  %12s in %" PRIu64 " block%s of %zu more\n", sg_size_format(bytes, size), blocks, sg_plural(blocks), count - ROWS);
    free(row);
}

static void print_map(const struct sg_page_map *moment)
{
    for (uint32_t at = 0; at < moment->cells; at += SG_MAP_COLUMNS) {
        int columns = (int)(moment->cells - at < SG_MAP_COLUMNS ? moment->cells - at : SG_MAP_COLUMNS);
        printf("  %.*s\n", columns, moment->map + at);
    }
}

static void print_pins(const struct sg_findings *findings, const struct sg_page_map *moment)
{
    enum { ROWS = 6 };
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT];
    printf("  %" PRIu64 " page%s used in part, with %s idle", moment->partly, moment->partly == 1 ? " is" : "s are",
           sg_size_format(moment->partly_idle, a));
    if (!moment->partly) {
        putchar('\n');
        return;
    }
    puts(". Without these blocks it is back:");
    for (uint32_t i = 0; i < moment->pins && i < ROWS; i++) {
        const struct sg_pin *pin = &moment->pin[i];
        printf("  %12s in %" PRIu64 " page%s: %" PRIu64 " block%s from %s, %s of them in use\n",
            sg_size_format(pin->back, a), pin->pages, sg_plural(pin->pages), pin->blocks, sg_plural(pin->blocks),
            sg_size_format(sg_live_class_from(pin->key.size_class), b), sg_size_format(pin->bytes, c));
        print_place(findings, &pin->key);
    }
}

void sg_report_moment(const struct sg_findings *findings, const char *when, const struct sg_page_map *moment)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    if (!moment->event || !moment->pages)
        return;
    printf("\nPages %s (event %" PRIu64 "): %s reserved, a mark is %s\n", when, moment->event,
           sg_size_format(moment->reserved, a), sg_size_format(moment->cell_bytes, b));
    print_map(moment);
    puts("  # in use  1-9 tenths of it  . idle  ~ freed, but still in use by queued work");
    print_pins(findings, moment);
}

/* One line of marks, as high as the level is against `top`. */
static void live_set_print_line(const char *name, const struct sg_steps *series, uint64_t top)
{
    enum { COLUMNS = 50, MARKS = 8 };
    static const char *const mark[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    char text[SG_SIZE_TEXT];
    uint32_t columns = series->used < COLUMNS ? series->used : COLUMNS;
    uint64_t peak = 0;
    printf("  %-10s ", name);
    for (uint32_t i = 0; i < columns; i++) {
        uint32_t from = (uint32_t)((uint64_t)i * series->used / columns),
                 to = (uint32_t)((uint64_t)(i + 1) * series->used / columns);
        uint64_t most = 0;
        for (uint32_t j = from; j < to; j++)
            most = series->most[j] > most ? series->most[j] : most;
        peak = most > peak ? most : peak;
        fputs(mark[most ? 1 + most * (MARKS - 1) / top : 0], stdout);
    }
    printf(" %s\n", sg_size_format(peak, text));
}

static uint64_t most_of(const struct sg_steps *series)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < series->used; i++)
        most = series->most[i] > most ? series->most[i] : most;
    return most;
}

void sg_report_over_time(const struct sg_findings_device *device)
{
    uint64_t requested = most_of(&device->requested), reserved = most_of(&device->reserved),
             top = requested > reserved ? requested : reserved;
    if (!top || device->requested.used < 2)
        return;
    live_set_print_line("requested", &device->requested, top);
    if (reserved)
        live_set_print_line("reserved", &device->reserved, top);
}
