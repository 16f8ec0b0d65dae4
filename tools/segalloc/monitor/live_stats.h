/* The live pages of processes that run with live:True: read only, nothing is asked of the processes. */
#ifndef SG_MONITOR_LIVE_STATS_H
#define SG_MONITOR_LIVE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "monitor/live_page.h"
#include "writer/stats_file.h"

struct sg_live {
    struct sg_stats_file *file; /* ascending by pid */
    size_t count;
};

/* Reads the pages of the processes in `pids`, or with count 0 all that there are. A page that a process left behind when
   it was killed is removed first. One that this user may not read is not among them. 0 or -ENOMEM. */
int sg_live_read(const uint64_t *pids, size_t count, struct sg_live *ret);
void sg_live_free(struct sg_live *live);

/* Rank of a process among those of its run, by its launcher's variables; negative: none, or not to be known. */
int sg_live_rank(uint64_t pid);

/* Allocated ÷ reserved of now; negative: nothing is reserved. */
double sg_live_utilization(const struct sg_stats *stats);

/* Bytes that are held for nothing: reserved, neither allocated nor pending. */
uint64_t sg_live_idle(const struct sg_stats *stats);

#endif
