/* `segalloc tune --html`: the settings tried, with a plot of the Pareto front, in one file. */
#ifndef SG_HTML_TUNE_PAGE_H
#define SG_HTML_TUNE_PAGE_H

#include "tune/report.h"

/* Writes the page. 0 or -ENOMEM. */
int sg_tune_page_write(FILE *out, const struct sg_tune_search *search);

#endif
