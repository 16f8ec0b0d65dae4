#include "analysis/growth.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/phase_step.h"
#include "analysis/walk.h"

/* FLOOR: bytes a step that are worth a line. Losses that a program collects on the device are 512 bytes each. QUARTERS: parts of the
   stretch, each of which must have its share. POINTS: of steps, or of several each.
   LEAST: points over which a line must have grown. */
enum { FLOOR = 4096, QUARTERS = 4, POINTS = 128, LEAST = 10 };

struct growing_line {
    uint32_t device, site;
    uint64_t live;                 /* bytes */
    uint64_t at[POINTS];           /* the low of each point */
};

struct growing_block {
    uint64_t size;
    uint32_t line; /* from 1; 0: none */
};

struct growing {
    struct growing_line *line;
    uint32_t lines, line_room;
    struct growing_block *block; /* by number */
    uint32_t block_room;
    uint32_t *line_of[SG_DICTIONARY_DEVICES]; /* by site: its line, from 1 */
    uint32_t sites[SG_DICTIONARY_DEVICES];    /* entries there */
    uint32_t phase;       /* looked at last, with its step: neighbours are alike */
    int64_t phase_step;
    int64_t now;          /* number of the step; negative: there was none yet */
    uint64_t width, wide; /* steps of a point; those that the last point has */
    uint64_t step[POINTS]; /* number of each point's first step */
    uint32_t points;
};

/* Makes an array have room for entry `at`, zeros behind what it had. */
static bool growth_make_room(void *array, size_t each, uint32_t at, uint32_t *room)
{
    if (at < *room)
        return true;
    uint32_t more = at < 512 ? 1024 : 2 * at;
    char *larger = realloc(*(void **)array, more * each);
    if (!larger)
        return false;
    memset(larger + *room * each, 0, (more - *room) * each);
    *(void **)array = larger;
    *room = more;
    return true;
}

/* The line of a site of a device, from 1; 0: no host memory. */
static uint32_t growing_line_of(struct growing *growing, uint32_t device, uint32_t site)
{
    if (!growth_make_room(&growing->line_of[device], sizeof *growing->line_of[device], site, &growing->sites[device]))
        return 0;
    uint32_t *number = &growing->line_of[device][site];
    if (*number)
        return *number;
    if (!growth_make_room(&growing->line, sizeof *growing->line, growing->lines, &growing->line_room))
        return 0;
    growing->line[growing->lines] = (struct growing_line){.device = device, .site = site};
    return *number = ++growing->lines;
}

/* Makes one point of each two: the lower low, for what was alive in neither is not kept. */
static void growing_halve(struct growing *growing)
{
    for (uint32_t i = 0; i < growing->lines; i++) {
        uint64_t *at = growing->line[i].at;
        for (uint32_t k = 0; k < POINTS / 2; k++)
            at[k] = at[2 * k] < at[2 * k + 1] ? at[2 * k] : at[2 * k + 1];
        memset(at + POINTS / 2, 0, sizeof *at * POINTS / 2);
    }
    for (uint32_t k = 0; k < POINTS / 2; k++)
        growing->step[k] = growing->step[2 * k];
    growing->points = POINTS / 2;
    growing->width *= 2;
}

/* A step ends, and the one of this number begins. */
static void growing_begin_step(struct growing *growing, int64_t number)
{
    if (growing->now >= 0 && growing->wide == growing->width) {
        if (++growing->points == POINTS)
            growing_halve(growing);
        growing->wide = 0;
    }
    if (!growing->wide)
        growing->step[growing->points] = (uint64_t)number;
    for (uint32_t i = 0; i < growing->lines; i++) {
        struct growing_line *line = &growing->line[i];
        if (!growing->wide || line->live < line->at[growing->points])
            line->at[growing->points] = line->live;
    }
    growing->wide++;
    growing->now = number;
}

/* Counts bytes of a line that come or go. */
static void growing_change(struct growing *growing, uint32_t number, uint64_t bytes, bool more)
{
    struct growing_line *line = &growing->line[number - 1];
    line->live += more ? bytes : -bytes;
    if (growing->now >= 0 && line->live < line->at[growing->points])
        line->at[growing->points] = line->live;
}

static int growing_take(void *user, const struct sg_walk_event *event)
{
    struct growing *growing = user;
    const struct sg_site_book *book = &event->dictionary->book;
    if (event->kind != SG_WALK_ALLOC && event->kind != SG_WALK_FREE)
        return 0;
    if (!growth_make_room(&growing->block, sizeof *growing->block, event->block, &growing->block_room))
        return -ENOMEM;
    struct growing_block *block = &growing->block[event->block];
    if (event->kind == SG_WALK_FREE) {
        if (block->line)
            growing_change(growing, block->line, block->size, false);
        return 0;
    }
    if (event->phase != growing->phase) {
        growing->phase = event->phase;
        growing->phase_step = sg_phase_step(book, event->phase);
    }
    if (growing->phase && growing->phase_step > growing->now)
        growing_begin_step(growing, growing->phase_step);
    *block = (struct growing_block){event->size, growing_line_of(growing, event->device, event->site)};
    if (!block->line)
        return -ENOMEM;
    growing_change(growing, block->line, block->size, true);
    return 0;
}

/* True if a line has grown steadily from point `from` to `last`. Each quarter has from half of its share to twice that, and little
   was lost in between. Half of it at least must be new: what varies comes back to where it has been. */
static bool growth_is_steady(const uint64_t *low, const uint64_t *step, uint32_t from, uint32_t last)
{
    uint64_t total = low[last] > low[from] ? low[last] - low[from] : 0, highest = low[from];
    double a_step = (double)total / (double)(step[last] - step[from]);
    for (uint32_t i = 0; i < from; i++)
        if (low[i] > low[last] - total / 2)
            return false;
    for (uint32_t i = from; i <= last; i++) {
        if (low[i] < highest && highest - low[i] > total / 8)
            return false;
        highest = low[i] > highest ? low[i] : highest;
    }
    for (uint32_t quarter = 0; quarter < QUARTERS; quarter++) {
        uint32_t begin = from + (last - from) * quarter / QUARTERS, end = from + (last - from) * (quarter + 1) / QUARTERS;
        double share = a_step * (double)(step[end] - step[begin]), grown = (double)low[end] - (double)low[begin];
        if (grown < share / 2 || grown > share * 2)
            return false;
    }
    return a_step >= FLOOR;
}

/* The point since which a line has grown steadily, and by how much. */
struct growth_found {
    uint32_t since;
    uint64_t bytes_a_step;
};

/* Finds since which of `count` points a line has grown steadily. `step`: the numbers of the points' steps, which rise. False: it
   has not. */
static bool growth_judge(const uint64_t *low, const uint64_t *step, uint32_t count, struct growth_found *ret)
{
    uint32_t last = count - 1, from = 0;
    if (count <= LEAST)
        return false;
    while (from + LEAST <= last && !growth_is_steady(low, step, from, last))
        from++;
    if (from + LEAST > last)
        return false;
    uint64_t a_step = (low[last] - low[from]) / (step[last] - step[from]);
    /* The first quarter may have begun before the growth did. */
    while (from + LEAST < last && low[from + 1] < low[from] + a_step * (step[from + 1] - step[from]) / 4)
        from++;
    *ret = (struct growth_found){from, (low[last] - low[from]) / (step[last] - step[from])};
    return true;
}

static int growth_compare_rows(const void *a, const void *b)
{
    const struct sg_growth_row *x = a, *y = b;
    return x->bytes_a_step != y->bytes_a_step ? (x->bytes_a_step < y->bytes_a_step ? 1 : -1) : (x->site > y->site) - (x->site < y->site);
}

/* Keeps a row among the fastest. */
static void growth_keep(struct sg_growth *growth, const struct sg_growth_row *row)
{
    if (growth->rows == SG_GROWTH_ROWS) {
        qsort(growth->row, growth->rows, sizeof *growth->row, growth_compare_rows);
        growth->rows -= growth_compare_rows(row, &growth->row[growth->rows - 1]) < 0;
    }
    if (growth->rows < SG_GROWTH_ROWS)
        growth->row[growth->rows++] = *row;
}

/* The last point is left out: its step is not whole, and at the end of a program all is freed. */
static void growing_judge_lines(const struct growing *growing, struct sg_growth *ret)
{
    struct growth_found found;
    for (uint32_t i = 0; i < growing->lines; i++) {
        const struct growing_line *line = &growing->line[i];
        if (!growth_judge(line->at, growing->step, growing->points, &found))
            continue;
        const struct sg_growth_row row = {.device = line->device, .site = line->site, .bytes_a_step = found.bytes_a_step,
            .grown = line->at[growing->points - 1] - line->at[found.since], .since_step = growing->step[found.since]};
        growth_keep(ret, &row);
    }
    qsort(ret->row, ret->rows, sizeof *ret->row, growth_compare_rows);
}

int sg_growth_read(struct sg_trace_reader *reader, struct sg_growth *ret)
{
    struct growing growing = {.width = 1, .now = -1, .phase_step = -1};
    *ret = (struct sg_growth){0};
    int error = sg_trace_rewind(reader);
    if (!error)
        error = sg_walk(reader, growing_take, &growing);
    if (!error) {
        ret->last_step = growing.now < 0 ? 0 : (uint64_t)growing.now;
        growing_judge_lines(&growing, ret);
    }
    for (int i = 0; i < SG_DICTIONARY_DEVICES; i++)
        free(growing.line_of[i]);
    free(growing.line);
    free(growing.block);
    return error;
}

uint64_t sg_growth_ends(const struct sg_growth *growth, uint32_t device, uint64_t room)
{
    uint64_t a_step = 0;
    for (uint32_t i = 0; i < growth->rows; i++)
        a_step += growth->row[i].device == device ? growth->row[i].bytes_a_step : 0;
    return a_step ? growth->last_step + room / a_step : 0;
}
