/* `segalloc report --html`: one file with the pictures of one or more runs. It needs no other file. */
#ifndef SG_HTML_PAGE_H
#define SG_HTML_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "report/trials.h"

enum { SG_PAGE_RUNS = 256 }; /* at most */

struct sg_page_trials {
    const struct sg_trials *tried; /* NULL: none, for the reason `why` */
    const char *why;
};

/* Writes the page. Traces are read again, so they are no pipes. `redact`: no name of the program's or of a file is in it.
   0, or a negative errno with one line in error[SG_FINDINGS_ERROR]. */
int sg_page_write(FILE *out, const struct sg_findings *const *runs, size_t count, const struct sg_page_trials *trials,
    bool redact, char *error);

#endif
