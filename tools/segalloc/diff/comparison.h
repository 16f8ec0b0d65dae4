/* Two traces side by side, row by row: what was alive at a moment, and what moved. */
#ifndef SG_COMPARISON_H
#define SG_COMPARISON_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/groups.h"
#include "replay/moves.h"

#define SG_ANY_SIZE UINT_MAX /* in place of a class of sizes: a row is of all that its line asked for */

/* Live blocks of one line, or of one place, phase and size, over all devices. The texts are of either side's groups. */
struct sg_compared_row {
    const char *site, *phase;
    unsigned size_class;
    uint64_t bytes[2], blocks[2];
};

/* Pages that were moved for requests of one line, or of one place, phase and size. */
struct sg_moved_row {
    const char *site, *phase;
    unsigned size_class;
    uint64_t requests[2], pages[2], bytes[2];
};

struct sg_comparison {
    struct sg_groups side[2];
    struct sg_compared_row *row;
    size_t count;
    struct sg_moves moves[2];
    bool knows_moves[2]; /* the trace is the library's own, and whole */
    struct sg_moved_row *moved;
    size_t moved_count;
    bool by_size; /* phases and sizes of a line have rows of their own */
};

/* Makes rows of the groups, and of the moves, of both sides. 0 or -ENOMEM. */
int sg_compare(struct sg_comparison *comparison);
int sg_compare_moves(struct sg_comparison *comparison);

/* The rows, to stdout; `all`: not only those that differ most. `paths`: of the two traces. */
void sg_comparison_print_text(const struct sg_comparison *comparison, bool all);
void sg_comparison_print_json(char **paths, const struct sg_comparison *comparison);

#endif
