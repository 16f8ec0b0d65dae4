/* Checks about work and processes: second addresses, order, what goes on at once. Each draws the verdict of the check of its name. */
#ifndef SG_JUDGE_WORK_H
#define SG_JUDGE_WORK_H

#include "selftest/judging.h"

void sg_judge_aliases(struct sg_judging *judging);
void sg_judge_kernels(struct sg_judging *judging);
void sg_judge_order(struct sg_judging *judging);
void sg_judge_beside_work(struct sg_judging *judging);
void sg_judge_growth(struct sg_judging *judging);
void sg_judge_captures(struct sg_judging *judging);
void sg_judge_exit(struct sg_judging *judging);
void sg_judge_contexts(struct sg_judging *judging);
void sg_judge_transfer(struct sg_judging *judging);
void sg_judge_managed(struct sg_judging *judging);
void sg_judge_peers(struct sg_judging *judging);
void sg_judge_shared_memory(struct sg_judging *judging);

#endif
