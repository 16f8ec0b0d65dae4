#include "tune/steady.h"

#include <stdlib.h>
#include <string.h>

#include "size.h"
#include "tune/choice.h"
#include "tune/play.h"

/* Two runs under one setting may differ by this part of what is reserved: half of SG_TUNE_NOISE. A page of the smallest
   size may always come on top. Pages that are tried are no larger. */
enum { STEADY_PART = 400 };
/* Allocations by which a GPU lags behind. Each setting that would be recommended is played so, up to so many
   settings. */
static const uint64_t LAGS[] = {3, 30, 300};
enum { SETTLED_MOST = 12 };

/* The difference that is allowed between two runs which reserve `bytes`. */
static uint64_t steady_tolerated(const struct sg_tune_trace *trace, uint64_t bytes)
{
    uint64_t least = trace->granularity ? trace->granularity : SG_TUNE_GRANULARITY;
    return bytes / STEADY_PART > least ? bytes / STEADY_PART : least;
}

bool sg_tune_page_is_too_large(const struct sg_tune_search *search, const struct sg_tune_parameter *parameter,
    const char *value)
{
    bool large = false;
    if (strcmp(parameter->key, "page_size_mb") != 0 || parameter->named)
        return false;
    for (size_t i = 0; i < search->traces; i++)
        large |= strtoull(value, NULL, 10) * SG_MIB > steady_tolerated(&search->trace[i], search->trace[i].peak_live);
    return large;
}

static bool steady_interrupted(void *user)
{
    const struct sg_tune_search *search = user;
    return atomic_load(search->stop);
}

/* Plays the candidate under each lag. True also where that cannot be done: a trace does not say enough, or an
   interrupt. */
static bool is_steady(struct sg_tune_search *search, struct sg_tune_candidate *candidate)
{
    uint64_t most = 0;
    bool steady = true;
    for (size_t k = 0; k < sizeof LAGS / sizeof *LAGS; k++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < search->traces; i++) {
            uint64_t own = candidate->result[i].peak_reserved;
            struct sg_tune_cursor cursor = {.trace = &search->trace[i], .stopped = steady_interrupted, .user = search};
            struct sg_play_result other;
            char error[SG_PLAY_ERROR];
            if (sg_tune_play(search, candidate, &cursor, LAGS[k], &other, error) != 0 || cursor.cut)
                return true;
            uint64_t more = other.peak_reserved > own ? other.peak_reserved - own : own - other.peak_reserved;
            steady &= more <= steady_tolerated(&search->trace[i], own);
            sum += other.peak_reserved;
        }
        most = sum > most ? sum : most;
    }
    candidate->lagging = most;
    return steady;
}

void sg_tune_settle(struct sg_tune_search *search)
{
    if (search->space->policy != SG_POLICY_SEGALLOC)
        return;
    for (int tries = 0; tries < SETTLED_MOST && !atomic_load(search->stop); tries++) {
        struct sg_tune_candidate *candidate = search->candidate[sg_tune_recommend(search)];
        if (candidate == search->candidate[0] || candidate->steadiness != SG_TUNE_NOT_TRIED)
            break;
        candidate->steadiness = is_steady(search, candidate) ? SG_TUNE_STEADY : SG_TUNE_UNSTEADY;
    }
    struct sg_tune_candidate *best = search->candidate[sg_tune_recommend(search)];
    if (best->done && !best->lagging && !atomic_load(search->stop))
        (void)is_steady(search, best); /* the defaults are recommended in any case, and what a lag changes is said */
    search->complete = search->complete && !steady_interrupted(search);
}

bool sg_tune_lag_decides(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate)
{
    uint64_t least = 0;
    for (size_t i = 0; i < search->traces; i++)
        least += steady_tolerated(&search->trace[i], candidate->result[i].peak_reserved);
    return candidate->lagging > candidate->reserved + least;
}
