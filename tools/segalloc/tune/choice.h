/* The choice among candidates that were played: the Pareto front, and the setting to recommend.

   For example, the defaults reserve 10 GiB, one setting 9.97 GiB and another 9 GiB with twice the driver calls. The first differs
   by less than SG_TUNE_NOISE, so it is no better. The second is recommended: its memory is less by more than that. */
#ifndef SG_TUNE_CHOICE_H
#define SG_TUNE_CHOICE_H

#include "tune/candidates.h"

/* Marks the candidates of the Pareto front of (reserved, driver calls): of those with the fewest allocations out of
 * memory. */
void sg_tune_front(struct sg_tune_search *search);

/* The figures by which the candidate is chosen. */
struct sg_tune_figures sg_tune_chosen_by(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate);

/* True where the candidate is on no trace worse than the defaults, in the parts that it is chosen on. Memory counts, and the
   cost of moving pages. */
bool sg_tune_no_worse(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate);

/* Index of the best setting: the least memory without being worse than the defaults. Within SG_TUNE_NOISE of that it is the
   simple one that makes few driver calls. */
size_t sg_tune_best(const struct sg_tune_search *search);

/* True where the setting that the first parts recommend is worse than the defaults on a trace as a whole: then the defaults
   stay. */
bool sg_tune_is_refuted(const struct sg_tune_search *search);

/* Index of the setting to recommend. The defaults, else the current one, stay where they are within SG_TUNE_NOISE of the
   best. The defaults also stay where the rest of the traces refutes it. */
size_t sg_tune_recommend(const struct sg_tune_search *search);

/* True where `a` has fewer failures than `b`, or as many and less memory, or as much and fewer driver calls. */
bool sg_tune_is_better(const struct sg_tune_search *search, const struct sg_tune_candidate *a,
    const struct sg_tune_candidate *b);

/* How far off the current setting's reserved memory is from what was recorded under it, bytes; 0 where that is not known.
   A replay has no queued work, whose memory comes back later. */
uint64_t sg_tune_doubt(const struct sg_tune_search *search);

#endif
