/* Steady settings: the next run, whose GPU lags behind in its own way, reserves what is predicted for them. */
#ifndef SG_TUNE_STEADY_H
#define SG_TUNE_STEADY_H

#include "tune/candidates.h"

/* True if one page more or less of that size is a larger difference than two runs may have. Never so where the user has
   named the parameter. */
bool sg_tune_page_is_too_large(const struct sg_tune_search *search, const struct sg_tune_parameter *parameter,
    const char *value);

/* Once all settings were played: those that reserve more or less with the lag of the GPU are not recommended. */
void sg_tune_settle(struct sg_tune_search *search);

/* True if the candidate reserves more where a GPU lags behind, as far as that was tried: memory that queued work uses
   is not free. */
bool sg_tune_lag_decides(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate);

#endif
