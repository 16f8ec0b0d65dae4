/* segalloc diff: what two traces hold at their peaks, row by row; the rows sum to the difference of the peaks. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/groups.h"
#include "json.h"
#include "replay/moves.h"
#include "size.h"
#include "tool.h"
#include "reader/trace_reader.h"

#define CLI_VERB "diff"
#define CLI_ROWS "verbs/diff.def"
#include "cli/rows.h"

enum { ROWS_SHOWN = 20 };
#define ANY_SIZE UINT_MAX /* in place of a class of sizes: a row is of all that its line asked for */

/* What was alive of one line, or of one place, phase and size, over all devices. The texts are of either side's groups. */
struct row {
    const char *site, *phase;
    unsigned size_class;
    uint64_t bytes[2], blocks[2];
};

/* Pages that were moved for requests of one line, or of one place, phase and size. */
struct moved_row {
    const char *site, *phase;
    unsigned size_class;
    uint64_t requests[2], pages[2], bytes[2];
};

struct comparison {
    struct sg_groups side[2];
    struct row *row;
    size_t count;
    struct sg_moves moves[2];
    bool knows_moves[2]; /* the trace is the library's own, and whole */
    struct moved_row *moved;
    size_t moved_count;
    bool by_size; /* phases and sizes of a line have rows of their own */
};

static int by_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "");
}

static int by_key(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = by_text(x->site, y->site);
    if (order == 0)
        order = by_text(x->phase, y->phase);
    return order ? order : (int)x->size_class - (int)y->size_class;
}

static uint64_t distance(const struct row *row)
{
    return row->bytes[0] > row->bytes[1] ? row->bytes[0] - row->bytes[1] : row->bytes[1] - row->bytes[0];
}

/* What differs most first, then what is largest. */
static int by_distance(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (distance(x) != distance(y))
        return distance(x) > distance(y) ? -1 : 1;
    if (x->bytes[1] != y->bytes[1])
        return x->bytes[1] > y->bytes[1] ? -1 : 1;
    return by_key(a, b);
}

/* The groups of both sides as rows. 0 or -ENOMEM. */
static int compare(struct comparison *comparison)
{
    size_t groups = comparison->side[0].count + comparison->side[1].count, count = 0;
    struct row *row = comparison->row = calloc(groups + 1, sizeof *row);
    if (!row)
        return -ENOMEM;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < comparison->side[side].count; i++) {
            const struct sg_group *group = &comparison->side[side].group[i];
            bool line = group->site && !comparison->by_size;
            row[count] = (struct row){.site = group->site, .phase = line ? NULL : group->phase,
                .size_class = line ? ANY_SIZE : group->size_class};
            row[count].bytes[side] = group->bytes;
            row[count++].blocks[side] = group->blocks;
        }
    }
    if (count)
        qsort(row, count, sizeof *row, by_key);
    for (size_t i = 0; i < count; i++) {
        struct row *last = comparison->count ? &row[comparison->count - 1] : NULL;
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
    const struct moved_row *x = a, *y = b;
    int order = by_text(x->site, y->site);
    if (order == 0)
        order = by_text(x->phase, y->phase);
    return order ? order : (int)x->size_class - (int)y->size_class;
}

static int by_moved_bytes(const void *a, const void *b)
{
    const struct moved_row *x = a, *y = b;
    uint64_t one = x->bytes[0] > x->bytes[1] ? x->bytes[0] : x->bytes[1],
             other = y->bytes[0] > y->bytes[1] ? y->bytes[0] : y->bytes[1];
    return one != other ? (one < other ? 1 : -1) : by_moved_key(a, b);
}

/* The moves of both sides as rows. 0 or -ENOMEM. */
static int compare_moves(struct comparison *comparison)
{
    size_t count = 0;
    struct moved_row *row = calloc(comparison->moves[0].count + comparison->moves[1].count + 1, sizeof *row);
    comparison->moved = row;
    if (!row)
        return -ENOMEM;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < comparison->moves[side].count; i++) {
            const struct sg_move *move = &comparison->moves[side].move[i];
            bool line = move->site && !comparison->by_size;
            row[count] = (struct moved_row){.site = move->site, .phase = line ? NULL : move->phase,
                .size_class = line ? ANY_SIZE : move->size_class};
            row[count].requests[side] = move->requests;
            row[count].pages[side] = move->pages;
            row[count++].bytes[side] = move->bytes;
        }
    }
    if (count)
        qsort(row, count, sizeof *row, by_moved_key);
    for (size_t i = 0; i < count; i++) {
        struct moved_row *last = comparison->moved_count ? &row[comparison->moved_count - 1] : NULL;
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

/* Place, phase and size of a row; the size is null for all sizes together. */
static json_t *json_row(const char *site, const char *phase, unsigned size_class)
{
    json_t *row = sg_json_object(NULL);
    sg_json_set_text(row, "site", site);
    sg_json_set_text(row, "phase", phase);
    if (size_class == ANY_SIZE)
        sg_json_set(row, "size_class", json_null());
    else
        sg_json_set(row, "size_class", sg_json_number(sg_live_class_from(size_class)));
    return row;
}

static const char *const side_keys[] = {"a", "b"};

static json_t *json_moved(const struct comparison *comparison)
{
    json_t *moved = sg_json_object(NULL), *rows = sg_json_array();
    for (int i = 0; i < 2; i++) {
        const struct sg_moves *moves = &comparison->moves[i];
        json_t *side = comparison->knows_moves[i] ? sg_json_object(NULL) : json_null();
        if (comparison->knows_moves[i])
            SG_JSON_NUMBERS(side, {"pages", moves->pages}, {"bytes", moves->bytes},
                {"diverged_request", moves->diverged});
        sg_json_set(moved, side_keys[i], side);
    }
    for (size_t i = 0; i < comparison->moved_count; i++) {
        const struct moved_row *row = &comparison->moved[i];
        json_t *item = json_row(row->site, row->phase, row->size_class);
        SG_JSON_NUMBERS(item, {"a_requests", row->requests[0]}, {"b_requests", row->requests[1]},
            {"a_pages", row->pages[0]}, {"b_pages", row->pages[1]}, {"a_bytes", row->bytes[0]},
            {"b_bytes", row->bytes[1]});
        sg_json_add(rows, item);
    }
    sg_json_set(moved, "rows", rows);
    return moved;
}

static void print_json(char **paths, const struct comparison *comparison)
{
    const struct sg_groups *side = comparison->side;
    json_t *result = sg_json_object("segalloc.diff/1"), *rows = sg_json_array();
    for (int i = 0; i < 2; i++) {
        json_t *run = sg_json_object(NULL);
        sg_json_set_text(run, "trace", paths[i]);
        SG_JSON_NUMBERS(run, {"bytes", side[i].bytes});
        sg_json_set_flag(run, "failed", side[i].moment.failed);
        sg_json_set(result, side_keys[i], run);
    }
    sg_json_set_signed(result, "difference_bytes", (int64_t)(side[1].bytes - side[0].bytes));
    for (size_t i = 0; i < comparison->count; i++) {
        const struct row *row = &comparison->row[i];
        json_t *item = json_row(row->site, row->phase, row->size_class);
        SG_JSON_NUMBERS(item, {"a_bytes", row->bytes[0]}, {"b_bytes", row->bytes[1]}, {"a_blocks", row->blocks[0]},
            {"b_blocks", row->blocks[1]});
        sg_json_set_signed(item, "difference_bytes", (int64_t)(row->bytes[1] - row->bytes[0]));
        sg_json_add(rows, item);
    }
    sg_json_set(result, "rows", rows);
    sg_json_set(result, "moved", json_moved(comparison));
    sg_json_print(result);
}

/* "+1.00 GiB", "-512 B". */
static char *signed_size(uint64_t from, uint64_t to, char text[SG_SIZE_TEXT + 1])
{
    text[0] = to < from ? '-' : '+';
    sg_size_format(to < from ? from - to : to - from, text + 1);
    return text;
}

static void print_line(uint64_t a, uint64_t b, const char *what)
{
    char from[SG_SIZE_TEXT], to[SG_SIZE_TEXT], more[SG_SIZE_TEXT + 1];
    printf("%12s %12s %13s  %s\n", sg_size_format(a, from), sg_size_format(b, to), signed_size(a, b, more), what);
}

/* "PLACE, PHASE, blocks of SIZE"; "PLACE" of all that it asked for. */
static const char *describe(const char *site, const char *phase, unsigned size_class, char what[3 * SG_GROUP_TEXT])
{
    char size[SG_GROUP_TEXT];
    if (size_class == ANY_SIZE) {
        snprintf(what, 3 * SG_GROUP_TEXT, "%s", site);
        return what;
    }
    snprintf(what, 3 * SG_GROUP_TEXT, "%s%s%s%sblocks of %s", site ? site : "", site ? ", " : "", phase ? phase : "",
        phase ? ", " : "", sg_group_size(size_class, size));
    return what;
}

static void print_moved_text(const struct comparison *comparison, bool all)
{
    const struct sg_moves *moves = comparison->moves;
    char what[3 * SG_GROUP_TEXT], line[4 * SG_GROUP_TEXT];
    if (!comparison->knows_moves[0] && !comparison->knows_moves[1])
        return;
    for (int i = 0; i < 2; i++)
        if (!comparison->knows_moves[i])
            printf("\nWhat moved is not known of %c.", "AB"[i]);
    if (!moves[0].pages && !moves[1].pages) {
        puts("\nNo page was moved.");
        return;
    }
    printf("\nWhat moved: bytes of pages that were taken from one place, for requests of\n%12s %12s %13s  %s\n", "A",
        "B", "B - A", "what");
    uint64_t rest[2] = {0};
    size_t shown = 0;
    for (size_t i = 0; i < comparison->moved_count; i++) {
        const struct moved_row *row = &comparison->moved[i];
        if (!all && shown == ROWS_SHOWN) {
            rest[0] += row->bytes[0];
            rest[1] += row->bytes[1];
            continue;
        }
        snprintf(line, sizeof line, "%s (%" PRIu64 " and %" PRIu64 " pages)",
            describe(row->site, row->phase, row->size_class, what), row->pages[0], row->pages[1]);
        print_line(row->bytes[0], row->bytes[1], line);
        shown++;
    }
    if (comparison->moved_count > shown) {
        snprintf(line, sizeof line, "in %zu more row%s", comparison->moved_count - shown,
            sg_plural(comparison->moved_count - shown));
        print_line(rest[0], rest[1], line);
    }
    snprintf(line, sizeof line, "in all (%" PRIu64 " and %" PRIu64 " pages)", moves[0].pages, moves[1].pages);
    print_line(moves[0].bytes, moves[1].bytes, line);
    for (int i = 0; i < 2; i++)
        if (moves[i].diverged)
            printf("From event %" PRIu64 " on the replay of %c is not the recorded run.\n", moves[i].diverged, "AB"[i]);
}

static void print_text(const struct comparison *comparison, bool all)
{
    const struct sg_groups *side = comparison->side;
    char what[3 * SG_GROUP_TEXT];
    uint64_t rest[2] = {0};
    size_t shown = 0;
    printf("%12s %12s %13s  %s\n", "A", "B", "B - A", "what");
    for (size_t i = 0; i < comparison->count; i++) {
        const struct row *row = &comparison->row[i];
        if (!all && shown == ROWS_SHOWN) {
            rest[0] += row->bytes[0];
            rest[1] += row->bytes[1];
            continue;
        }
        char line[4 * SG_GROUP_TEXT];
        snprintf(line, sizeof line, "%s (%" PRIu64 " and %" PRIu64 " blocks)", describe(row->site, row->phase, row->size_class, what),
            row->blocks[0], row->blocks[1]);
        print_line(row->bytes[0], row->bytes[1], row->size_class == ANY_SIZE ? line : what);
        shown++;
    }
    if (comparison->count > shown) {
        snprintf(what, sizeof what, "in %zu more row%s", comparison->count - shown,
            sg_plural(comparison->count - shown));
        print_line(rest[0], rest[1], what);
    }
    print_line(side[0].bytes, side[1].bytes, "in all");
    print_moved_text(comparison, all);
}

static int read_side(const char *verb, const char *path, enum sg_moment moment, struct comparison *comparison, int side)
{
    struct sg_groups *ret = &comparison->side[side];
    struct sg_trace_reader *reader;
    char problem[SG_TRACE_ERROR];
    if (sg_trace_open(path, &reader, problem) < 0)
        return sg_tool_error(verb, "%s: %s", path, problem);
    int error = sg_groups_read(reader, moment, UINT64_MAX, ret), status = SG_EXIT_OK;
    const struct sg_trace_info *info = sg_trace_info(reader);
    if (sg_trace_error(reader))
        status = sg_tool_error(verb, "%s: %s", path, sg_trace_error(reader));
    else if (error == -ENOENT)
        status = sg_tool_error(verb, "%s: no allocation failed in it", path);
    else if (error == -ESPIPE)
        status = sg_tool_error(verb, "%s: a file is needed, for it is read twice", path);
    else if (error)
        status = sg_tool_error(verb, "%s: %s", path, strerror(-error));
    else if (info->end == SG_TRACE_DAMAGED)
        status = sg_tool_error(verb, "%s: %s", path, info->end_text);
    else if (!ret->moment.all)
        status = sg_tool_error(verb, "%s: the trace has no events", path);
    /* Dropped records leave a replay without what it needs. */
    error = status || info->dropped ? -ENODATA : sg_moves_read(reader, &comparison->moves[side]);
    comparison->knows_moves[side] = !error;
    if (error == -ENOMEM)
        status = sg_tool_error(verb, "out of memory");
    sg_trace_close(reader);
    return status;
}

int sg_verb_diff(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum sg_moment moment;
    } moments[] = {{"peak", SG_MOMENT_PEAK}, {"failure", SG_MOMENT_FAILURE}, {"end", SG_MOMENT_END}};
    enum sg_moment moment = SG_MOMENT_PEAK;
    struct sg_cli cli;
    bool all = false, json = false, by_size = false;
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    for (int option; (option = sg_cli_next(&cli)) >= 0;) {
        size_t i = 0;
        switch ((enum option_of_verb)option) {
        case OPTION_all:
            all = true;
            break;
        case OPTION_json:
            json = true;
            break;
        case OPTION_by:
            by_size = strcmp(optarg, "size") == 0;
            if (!by_size && strcmp(optarg, "line") != 0)
                return sg_tool_usage(argv[0], "--by takes line or size, not \"%s\"", optarg);
            break;
        case OPTION_at:
            while (i < 3 && strcmp(optarg, moments[i].name) != 0)
                i++;
            if (i == 3)
                return sg_tool_usage(argv[0], "--at takes peak, failure or end, not \"%s\"", optarg);
            moment = moments[i].moment;
            break;
        }
    }
    if (cli.status)
        return cli.status;
    if (argc - optind != 2)
        return sg_tool_usage(argv[0], "two traces are compared, not %d", argc - optind);
    struct comparison comparison = {.by_size = by_size};
    int status = SG_EXIT_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = read_side(argv[0], argv[optind + i], moment, &comparison, i);
    if (!status && (compare(&comparison) < 0 || compare_moves(&comparison) < 0))
        status = sg_tool_error(argv[0], "out of memory");
    if (!status && json)
        print_json(argv + optind, &comparison);
    else if (!status)
        print_text(&comparison, all);
    for (int i = 0; i < 2; i++) {
        sg_groups_free(&comparison.side[i]);
        sg_moves_free(&comparison.moves[i]);
    }
    free(comparison.row);
    free(comparison.moved);
    return status;
}
