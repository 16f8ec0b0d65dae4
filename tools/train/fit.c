#include "fit.h"

enum { SHOWING_STEPS = 2, SHOWING_PARTS = 2, MOST_TIMES = 4096 };

void fit_plan(const struct options *options, struct run_result *ret_result)
{
    struct options o = *options;
    if (o.set.steps > SHOWING_STEPS)
        o.set.steps = SHOWING_STEPS;
    if (o.evaluate > o.set.steps && o.evaluate <= options->set.steps)
        o.evaluate = o.set.steps; /* as large whenever it comes, once the moments are there */
    training_plan(&o, options->set.steps, ret_result);
}

/* A fiftieth: the allocations of these presets lose less than half of that to partly used pages on a full card
   (docs/training-loads.md). */
enum { LOST_PART = 50 };

size_t fit_usable(size_t card)
{
    return card - card / LOST_PART;
}

static bool fit_try(const struct options *options, enum fit what, int value, size_t card)
{
    struct options o = *options;
    if (what == FIT_BATCH)
        o.set.batch = value;
    else if (what == FIT_SEQ)
        o.set.longest = value * LENGTH_STEP;
    else
        o.set.shape.rank = value;
    o.set.lengths = "fixed"; /* the longest is what decides */
    if (o.set.accumulation > SHOWING_PARTS)
        o.set.accumulation = SHOWING_PARTS;
    struct run_result r;
    fit_plan(&o, &r);
    return r.outcome == OUTCOME_COMPLETED && r.peak <= fit_usable(card);
}

int fit_largest(const struct options *options, enum fit what, size_t card, bool *ret_more)
{
    *ret_more = false;
    int good = 0, bad = 1;
    while (fit_try(options, what, bad, card)) {
        good = bad;
        bad *= 2;
        if ((*ret_more = bad > MOST_TIMES * LENGTH_STEP))
            return what == FIT_SEQ ? good * LENGTH_STEP : good;
    }
    while (bad - good > 1) {
        int middle = good + (bad - good) / 2;
        if (fit_try(options, what, middle, card))
            good = middle;
        else
            bad = middle;
    }
    return what == FIT_SEQ ? good * LENGTH_STEP : good;
}
