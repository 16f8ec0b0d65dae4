/* The statistics of one device, all of which stand in one table, stats.def.

   A *level* is a present value with its peak, such as reserved_bytes. A *counter* only grows, such as allocs. Names,
   units, order and meaning come from the table, so that the library, its files, reports and Python agree.

   Example: a row STAT(grows, COUNTER, COUNT, "...") gives SG_STAT_grows and the member "grows" of a statistics file. In a
   trace it is a record STATISTIC, whose id is the FNV-1a hash of "grows". A LEVEL also has a member "peak_NAME". */
#ifndef SG_STATS_H
#define SG_STATS_H

#include <stdint.h>

enum sg_stat {
#define STAT(name, kind, unit, text) SG_STAT_##name,
#include "stats.def"
    SG_STAT_COUNT
};

enum sg_stat_kind { SG_STAT_LEVEL, SG_STAT_COUNTER };

struct sg_stats {
    uint64_t value[SG_STAT_COUNT]; /* current value of a level, total of a counter */
    uint64_t peak[SG_STAT_COUNT];  /* of levels; 0 for counters */
};

/* A row of the table; constant texts. */
struct sg_stat_info {
    const char *name, *unit, *text;
    enum sg_stat_kind kind;
};
/* The row of a statistic, which lives as long as the program. */
const struct sg_stat_info *sg_stat_info(enum sg_stat stat);

#endif
