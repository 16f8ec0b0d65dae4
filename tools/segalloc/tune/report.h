/* The result of a search, in words and as JSON. */
#ifndef SG_TUNE_REPORT_H
#define SG_TUNE_REPORT_H

#include "json.h"
#include "tune/candidates.h"

enum { SG_TUNE_REASON = 1024 };

/* Why `recommended` is, in a sentence or two; returns `text`. */
char *sg_tune_reason(const struct sg_tune_search *search, size_t recommended, char text[SG_TUNE_REASON]);

/* The line to paste into a shell; "" when there is nothing to change. The caller frees it. */
char *sg_tune_line(const struct sg_tune_search *search, size_t recommended);

/* To stdout. `seconds`: how long everything took. */
void sg_tune_print_text(const struct sg_tune_search *search, double seconds);

/* One object. `seconds` negative: members that differ from run to run are left out. */
json_t *sg_tune_json(const struct sg_tune_search *search, double seconds);

#endif
