/* The search: which settings are replayed, and in which order. */
#ifndef SG_TUNE_SEARCH_H
#define SG_TUNE_SEARCH_H

#include "tune/candidates.h"

/* Runs the search. 0 when at least the defaults were played to the end; -EINTR when not even that; another negative
   errno with a line in error[SG_TUNE_ERROR]. */
int sg_tune_search(struct sg_tune_search *search, char *error);
void sg_tune_search_free(struct sg_tune_search *search);

/* The candidate equal to `value`, or NULL. */
const struct sg_tune_candidate *sg_tune_find(const struct sg_tune_search *search, const char *const *value);

#endif
