/* What a search found, in words and as JSON. */
#ifndef SG_TUNE_REPORT_H
#define SG_TUNE_REPORT_H

#include "tune/search.h"

enum { SG_TUNE_REASON = 1024 };

/* Why `recommended` is, in a sentence or two; returns `text`. */
char *sg_tune_reason(const struct sg_tune_search *search, size_t recommended, char text[SG_TUNE_REASON]);

/* To stdout. `seconds`: how long everything took. */
void sg_tune_print_text(const struct sg_tune_search *search, double seconds);
void sg_tune_print_json(const struct sg_tune_search *search, double seconds);

#endif
