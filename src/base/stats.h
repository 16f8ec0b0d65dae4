/* The statistics of one device: one table, stats.def. */
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

struct sg_stat_info {
    const char *name, *unit, *text;
    enum sg_stat_kind kind;
};
const struct sg_stat_info *sg_stat_info(enum sg_stat stat);

#endif
