#include "diff/comparison.h"

#include <inttypes.h>
#include <stdio.h>

#include "size.h"

enum { ROWS_SHOWN = 20 };

/* "+1.00 GiB", "-512 B". */
static char *signed_size(uint64_t from, uint64_t to, char text[SG_SIZE_TEXT + 1])
{
    text[0] = to < from ? '-' : '+';
    sg_size_format(to < from ? from - to : to - from, text + 1);
    return text;
}

static void diff_print_line(uint64_t a, uint64_t b, const char *what)
{
    char from[SG_SIZE_TEXT], to[SG_SIZE_TEXT], more[SG_SIZE_TEXT + 1];
    printf("%12s %12s %13s  %s\n", sg_size_format(a, from), sg_size_format(b, to), signed_size(a, b, more), what);
}

/* "PLACE, PHASE, blocks of SIZE"; "PLACE" of all that it asked for. */
static const char *diff_describe_group(const char *site, const char *phase, unsigned size_class,
    char what[3 * SG_GROUP_TEXT])
{
    char size[SG_GROUP_TEXT];
    if (size_class == SG_ANY_SIZE) {
        snprintf(what, 3 * SG_GROUP_TEXT, "%s", site);
        return what;
    }
    snprintf(what, 3 * SG_GROUP_TEXT, "%s%s%s%sblocks of %s", site ? site : "", site ? ", " : "", phase ? phase : "",
        phase ? ", " : "", sg_group_size(size_class, size));
    return what;
}

static void print_moved_text(const struct sg_comparison *comparison, bool all)
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
        const struct sg_moved_row *row = &comparison->moved[i];
        if (!all && shown == ROWS_SHOWN) {
            rest[0] += row->bytes[0];
            rest[1] += row->bytes[1];
            continue;
        }
        snprintf(line, sizeof line, "%s (%" PRIu64 " and %" PRIu64 " pages)",
            diff_describe_group(row->site, row->phase, row->size_class, what), row->pages[0], row->pages[1]);
        diff_print_line(row->bytes[0], row->bytes[1], line);
        shown++;
    }
    if (comparison->moved_count > shown) {
        snprintf(line, sizeof line, "in %zu more row%s", comparison->moved_count - shown,
            sg_plural(comparison->moved_count - shown));
        diff_print_line(rest[0], rest[1], line);
    }
    snprintf(line, sizeof line, "in all (%" PRIu64 " and %" PRIu64 " pages)", moves[0].pages, moves[1].pages);
    diff_print_line(moves[0].bytes, moves[1].bytes, line);
    for (int i = 0; i < 2; i++)
        if (moves[i].diverged)
            printf("From event %" PRIu64 " on the replay of %c is not the recorded run.\n", moves[i].diverged, "AB"[i]);
}

void sg_comparison_print_text(const struct sg_comparison *comparison, bool all)
{
    const struct sg_groups *side = comparison->side;
    char what[3 * SG_GROUP_TEXT];
    uint64_t rest[2] = {0};
    size_t shown = 0;
    printf("%12s %12s %13s  %s\n", "A", "B", "B - A", "what");
    for (size_t i = 0; i < comparison->count; i++) {
        const struct sg_compared_row *row = &comparison->row[i];
        if (!all && shown == ROWS_SHOWN) {
            rest[0] += row->bytes[0];
            rest[1] += row->bytes[1];
            continue;
        }
        char line[4 * SG_GROUP_TEXT];
        snprintf(line, sizeof line, "%s (%" PRIu64 " and %" PRIu64 " blocks)",
            diff_describe_group(row->site, row->phase, row->size_class, what), row->blocks[0], row->blocks[1]);
        diff_print_line(row->bytes[0], row->bytes[1], row->size_class == SG_ANY_SIZE ? line : what);
        shown++;
    }
    if (comparison->count > shown) {
        snprintf(what, sizeof what, "in %zu more row%s", comparison->count - shown,
            sg_plural(comparison->count - shown));
        diff_print_line(rest[0], rest[1], what);
    }
    diff_print_line(side[0].bytes, side[1].bytes, "in all");
    print_moved_text(comparison, all);
}
