/* Answers from plans: how much a run needs, and the largest value of a setting with which it fits a card. */
#ifndef TRAIN_FIT_H
#define TRAIN_FIT_H

#include "training.h"

/* Plans as many steps as show the peak. */
void fit_plan(const struct options *options, struct run_result *ret_result);

/* Bytes of a card that tensors may take: allocators lose a part to pages that are partly used. */
size_t fit_usable(size_t card);

/* Largest value of `what` with which a run fits a card of so many bytes, all else as in the options; 0 if none does.
   *ret_more: values above it were not tried. */
int fit_largest(const struct options *options, enum fit what, size_t card, bool *ret_more);

#endif
