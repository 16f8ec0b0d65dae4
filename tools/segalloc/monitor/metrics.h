/* Statistics in Prometheus's text format, version 0.0.4. */
#ifndef SG_METRICS_H
#define SG_METRICS_H

#include <stdio.h>

#include "monitor/live_stats.h"

/* Every statistic of stats.def: a level as a gauge and its peak, a counter with _total, times in seconds. */
void sg_metrics_write(FILE *out, const struct sg_live *live);

/* Answers GET /metrics at `address` ("PORT", "ADDRESS:PORT", "[ADDRESS]:PORT"; a port alone is on the loopback interface)
   until SIGINT or SIGTERM comes; says where on stderr. The exit status. */
int sg_metrics_serve(const char *verb, const char *address, const uint64_t *pids, size_t count);

#endif
