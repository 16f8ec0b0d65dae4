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
/* One object; `nested`: without the schema, as part of a list. */
json_t *sg_report_json(const struct sg_findings *findings, bool nested);
/* One line a file; by rank where all files say theirs, and then one below for all. */
void sg_report_table(const struct sg_findings *const *findings, size_t count);

#endif
