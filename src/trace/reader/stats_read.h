/* Statistics of a process, read from a file as stats_file.h describes it. It is for tools: it uses jansson and the heap.

   Example: a file of an older segalloc has no "grows". The value is 0, and nothing else is wrong with it. A file of a newer
   one has a statistic that this build does not know, which is left out. */
#ifndef SG_STATS_READ_H
#define SG_STATS_READ_H

#include <stdbool.h>

#include "writer/stats_file.h"

/* Reads a whole file. Statistics that it has no value for are 0; names that this build doesn't know are left out. Returns
   0 or a negative errno with one line in error[SG_STATS_ERROR]. sg_stats_file_free() gives the texts and devices back. */
int sg_stats_file_read(const char *path, struct sg_stats_file *ret, char *error);
void sg_stats_file_free(struct sg_stats_file *file);

/* True where a regular file begins as one of these does. */
bool sg_stats_file_detect(const char *path);

#endif
