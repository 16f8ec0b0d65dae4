/* One replay of a trace under a candidate's setting. */
#ifndef SG_TUNE_PLAY_H
#define SG_TUNE_PLAY_H

#include "tune/candidates.h"

/* Plays the trace of `cursor` under a setting; `lag`: as on a GPU that is so many allocations behind; 0: not at all. 0, or
   as sg_play_run(). */
int sg_tune_play(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate,
    struct sg_tune_cursor *cursor, uint64_t lag, struct sg_play_result *ret, char error[SG_PLAY_ERROR]);

/* Size of the card that trace `index` is played on. */
uint64_t sg_tune_card(const struct sg_tune_search *search, size_t index);

#endif
