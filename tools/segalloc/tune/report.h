/* What a search found, in words and as JSON. */
#ifndef SG_TUNE_REPORT_H
#define SG_TUNE_REPORT_H

#include <stdio.h>

#include "tune/search.h"

enum { SG_TUNE_REASON = 1024 };

/* Why `recommended` is, in a sentence or two; returns `text`. */
char *sg_tune_reason(const struct sg_tune_search *search, size_t recommended, char text[SG_TUNE_REASON]);

/* The line to paste into a shell; "" when there is nothing to change. The caller frees it. */
char *sg_tune_line(const struct sg_tune_search *search, size_t recommended);

/* To stdout. `seconds`: how long everything took. */
void sg_tune_print_text(const struct sg_tune_search *search, double seconds);

/* One object, without a newline. `seconds` negative: what differs from run to run is
   left out. */
void sg_tune_write_json(FILE *out, const struct sg_tune_search *search, double seconds);

#endif
