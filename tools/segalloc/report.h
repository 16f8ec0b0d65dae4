/* The ways in which `segalloc report` shows its findings, all to stdout. */
#ifndef SG_REPORT_H
#define SG_REPORT_H

#include "findings.h"

void sg_report_text(const struct sg_findings *findings);
/* One object without a newline; `nested`: without the schema, as part of a list. */
void sg_report_json(const struct sg_findings *findings, bool nested);
/* One line a file; by rank where all files say theirs, and then one below for all. */
void sg_report_table(const struct sg_findings *const *findings, size_t count);

#endif
