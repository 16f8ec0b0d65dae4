#include "diff/comparison.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "");
}

static int by_key(const void *a, const void *b)
{
    const struct sg_compared_row *x = a, *y = b;
    int order = by_text(x->site, y->site);
    if (order == 0)
        order = by_text(x->phase, y->phase);
    return order ? order : (int)x->size_class - (int)y->size_class;
}

static uint64_t row_distance(const struct sg_compared_row *row)
{
    return row->bytes[0] > row->bytes[1] ? row->bytes[0] - row->bytes[1] : row->bytes[1] - row->bytes[0];
}

/* The largest difference first, then the largest row. */
static int by_distance(const void *a, const void *b)
{
    const struct sg_compared_row *x = a, *y = b;
    if (row_distance(x) != row_distance(y))
        return row_distance(x) > row_distance(y) ? -1 : 1;
    if (x->bytes[1] != y->bytes[1])
        return x->bytes[1] > y->bytes[1] ? -1 : 1;
    return by_key(a, b);
}

/* The groups of both sides as rows. 0 or -ENOMEM. */
int sg_compare(struct sg_comparison *comparison)
{
    size_t groups = comparison->side[0].count + comparison->side[1].count, count = 0;
    struct sg_compared_row *row = comparison->row = calloc(groups + 1, sizeof *row);
    if (!row)
        return -ENOMEM;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < comparison->side[side].count; i++) {
            const struct sg_group *group = &comparison->side[side].group[i];
            bool line = group->site && !comparison->by_size;
            row[count] = (struct sg_compared_row){.site = group->site,
                .phase = line ? NULL : group->phase,
                .size_class = line ? SG_ANY_SIZE : group->size_class};
            row[count].bytes[side] = group->bytes;
            row[count++].blocks[side] = group->blocks;
        }
    }
    if (count)
        qsort(row, count, sizeof *row, by_key);
    for (size_t i = 0; i < count; i++) {
        struct sg_compared_row *last = comparison->count ? &row[comparison->count - 1] : NULL;
        if (!last || by_key(last, &row[i]) != 0) {
            row[comparison->count++] = row[i];
            continue;
        }
        for (int side = 0; side < 2; side++) {
            last->bytes[side] += row[i].bytes[side];
            last->blocks[side] += row[i].blocks[side];
        }
    }
    if (comparison->count)
        qsort(row, comparison->count, sizeof *row, by_distance);
    return 0;
}

static int by_moved_key(const void *a, const void *b)
{
    const struct sg_moved_row *x = a, *y = b;
    int order = by_text(x->site, y->site);
    if (order == 0)
        order = by_text(x->phase, y->phase);
    return order ? order : (int)x->size_class - (int)y->size_class;
}

static int by_moved_bytes(const void *a, const void *b)
{
    const struct sg_moved_row *x = a, *y = b;
    uint64_t one = x->bytes[0] > x->bytes[1] ? x->bytes[0] : x->bytes[1],
             other = y->bytes[0] > y->bytes[1] ? y->bytes[0] : y->bytes[1];
    return one != other ? (one < other ? 1 : -1) : by_moved_key(a, b);
}

/* The moves of both sides as rows. 0 or -ENOMEM. */
int sg_compare_moves(struct sg_comparison *comparison)
{
    size_t count = 0;
    struct sg_moved_row *row = calloc(comparison->moves[0].count + comparison->moves[1].count + 1, sizeof *row);
    comparison->moved = row;
    if (!row)
        return -ENOMEM;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < comparison->moves[side].count; i++) {
            const struct sg_move *move = &comparison->moves[side].move[i];
            bool line = move->site && !comparison->by_size;
            row[count] = (struct sg_moved_row){.site = move->site,
                .phase = line ? NULL : move->phase,
                .size_class = line ? SG_ANY_SIZE : move->size_class};
            row[count].requests[side] = move->requests;
            row[count].pages[side] = move->pages;
            row[count++].bytes[side] = move->bytes;
        }
    }
    if (count)
        qsort(row, count, sizeof *row, by_moved_key);
    for (size_t i = 0; i < count; i++) {
        struct sg_moved_row *last = comparison->moved_count ? &row[comparison->moved_count - 1] : NULL;
        if (!last || by_moved_key(last, &row[i]) != 0) {
            row[comparison->moved_count++] = row[i];
            continue;
        }
        for (int side = 0; side < 2; side++) {
            last->requests[side] += row[i].requests[side];
            last->pages[side] += row[i].pages[side];
            last->bytes[side] += row[i].bytes[side];
        }
    }
    if (comparison->moved_count)
        qsort(row, comparison->moved_count, sizeof *row, by_moved_bytes);
    return 0;
}
