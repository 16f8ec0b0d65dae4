/* The ways in which `segalloc report` shows its findings, all to stdout but for JSON. */
#ifndef SG_REPORT_H
#define SG_REPORT_H

#include "json.h"
#include "report/findings.h"

/* The verdict, what failed, ten lines of code and what to do; `all`: everything that is known. */
void sg_report_text(const struct sg_findings *findings, bool all);
/* Parts of it: a live set, the largest groups first; the pages of a device at a moment; its levels as a line of marks. */
void sg_report_live(const struct sg_findings *findings, const char *heading, const struct sg_live_set *set);
/* The ten lines of code that hold most of a live set; what has no line by its size. */
void sg_report_lines(const struct sg_findings *findings, const char *heading, const struct sg_live_set *set);
void sg_report_moment(const struct sg_findings *findings, const char *when, const struct sg_page_map *moment);
void sg_report_over_time(const struct sg_findings_device *device);
/* Findings of a run that checked itself: their sum as one line without an end, "" where it did not. One finding in words,
   "write after free", and as lines with a label each. All of them as JSON, null where it did not. */
char *sg_report_checked_sum(const struct sg_findings *findings, char *text, size_t size);
const char *sg_report_checked_words(const struct sg_checked_finding *finding);
typedef void sg_report_line_fn(void *user, const char *label, const char *text);
void sg_report_checked_lines(const struct sg_findings *findings, const struct sg_checked_finding *finding,
    sg_report_line_fn *say, void *user);
json_t *sg_report_checked_json(const struct sg_findings *findings);
/* One object; `nested`: without the schema, as part of a list. */
json_t *sg_report_json(const struct sg_findings *findings, bool nested);
/* One line a file; by rank where all files say theirs, and then one below for all. */
void sg_report_table(const struct sg_findings *const *findings, size_t count);

#endif
