/* The text of `segalloc trace info`, on standard output. */
#ifndef SG_TRACE_INFO_H
#define SG_TRACE_INFO_H

#include "analysis/summary.h"
#include "reader/trace_reader.h"

/* One line of JSON, by docs/schemas; `input`: the trace's path. */
void sg_trace_info_json(const char *input, const struct sg_trace_info *info, const struct sg_summary *summary);
void sg_trace_info_text(const struct sg_trace_info *info, const struct sg_summary *summary);

#endif
