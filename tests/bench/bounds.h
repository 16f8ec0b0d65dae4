/* The bounds of docs/bounds.md, held against a sequence of allocations and frees. */
#ifndef BENCH_BOUNDS_H
#define BENCH_BOUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "adversary.h"

/* What follows from the events alone. */
struct facts {
    uint64_t live, peak_live;           /* bytes asked for */
    uint64_t allocs;
    uint64_t largest_reach;             /* bytes of the pages that one block could touch */
    uint64_t reach, peak_reach;         /* bytes of all pages that the live blocks could touch, wherever they stand */
    uint64_t allocs_reach, frees_reach; /* the same, summed over all allocations and over all frees */
};

/* What a sequence is played under. */
struct terms {
    const char *name; /* of the sequence, for messages */
    const char *conf;
    double slack;     /* the reserve_slack that `conf` fixes; 0: auto */
    uint64_t card_bytes, page_bytes;
};

struct outcome {
    uint64_t peak_reserved, peak_allocated, peak_touched; /* touched: pages with a live block in them, bytes */
    uint64_t pages_moved, ooms, allocs;
};

struct facts facts_of(const struct events *events, uint64_t page_bytes);

/* Plays the events on a card that keeps books and holds what came of it against each bound. A line on stderr for each
   that is broken, after which bounds_broken() is true. */
struct outcome bounds_play(const struct terms *terms, const struct events *events, const struct facts *facts);

/* One expectation more: a line on stderr where it does not hold. */
void bounds_expect(const struct terms *terms, bool holds, const char *bound, uint64_t value, uint64_t most);
bool bounds_broken(void);

#endif
