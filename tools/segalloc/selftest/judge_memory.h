/* Checks about memory: sizes, pages, names and costs of calls. Each draws the verdict of the check of its name, by lines and facts. */
#ifndef SG_JUDGE_MEMORY_H
#define SG_JUDGE_MEMORY_H

#include "selftest/judging.h"

void sg_judge_totals(struct sg_judging *judging);
void sg_judge_calls(struct sg_judging *judging);
void sg_judge_plain(struct sg_judging *judging);
void sg_judge_pages(struct sg_judging *judging);
void sg_judge_exported(struct sg_judging *judging);
void sg_judge_pointers(struct sg_judging *judging);
void sg_judge_names(struct sg_judging *judging);
void sg_judge_addresses(struct sg_judging *judging);
void sg_judge_costs(struct sg_judging *judging);
void sg_judge_mappings(struct sg_judging *judging);

#endif
