#include "tune/choice.h"

#include <math.h>
#include <string.h>

bool sg_tune_is_better(const struct sg_tune_search *search, const struct sg_tune_candidate *a,
    const struct sg_tune_candidate *b)
{
    const struct sg_tune_figures one = sg_tune_chosen_by(search, a), other = sg_tune_chosen_by(search, b);
    return one.ooms != other.ooms           ? one.ooms < other.ooms
           : one.reserved != other.reserved ? one.reserved < other.reserved
                                            : one.calls < other.calls;
}

static bool candidate_dominates(const struct sg_tune_candidate *a, const struct sg_tune_candidate *b)
{
    if (a->ooms != b->ooms)
        return a->ooms < b->ooms;
    if (a->reserved == b->reserved && a->calls == b->calls) /* of equals the simpler, and of these one */
        return a->setting.keys != b->setting.keys ? a->setting.keys < b->setting.keys
                                                  : strcmp(a->setting.conf, b->setting.conf) < 0;
    return a->reserved <= b->reserved && a->calls <= b->calls;
}

void sg_tune_front(struct sg_tune_search *search)
{
    for (size_t i = 0; i < search->count; i++) {
        struct sg_tune_candidate *candidate = search->candidate[i];
        candidate->front = candidate->done;
        for (size_t j = 0; j < search->count && candidate->front; j++)
            candidate->front = j == i || !search->candidate[j]->done ||
                               !candidate_dominates(search->candidate[j], candidate);
    }
}

struct sg_tune_figures sg_tune_chosen_by(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate)
{
    if (search->basis == SG_TUNE_FIRST_PARTS)
        return candidate->first;
    return (struct sg_tune_figures){candidate->reserved, candidate->calls, candidate->ooms};
}

static struct sg_play_part result_as_part(const struct sg_play_result *result)
{
    return (struct sg_play_part){.allocs = result->allocs,
        .ooms = result->ooms,
        .peak_reserved = result->peak_reserved,
        .growth_ns = result->growth_ns,
        .move_ns = result->move_ns};
}

/* True where the candidate is on no trace worse than the defaults; `first`: on its first part, where it has one. */
static bool candidate_no_worse_on(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate,
    bool first)
{
    const struct sg_tune_candidate *standard = search->candidate[0];
    if (!candidate->done || candidate->steadiness == SG_TUNE_UNSTEADY)
        return false;
    for (size_t i = 0; i < search->traces; i++) {
        bool part = first && standard->result[i].parted;
        struct sg_play_part mine = part ? candidate->result[i].first : result_as_part(&candidate->result[i]);
        struct sg_play_part its = part ? standard->result[i].first : result_as_part(&standard->result[i]);
        if (mine.ooms > its.ooms)
            return false;
        if (its.ooms)
            continue; /* what did not fit is not counted: the two are not to be compared */
        uint64_t steady = mine.allocs * SG_TUNE_MOVE_NS, more = steady > its.growth_ns ? steady : its.growth_ns;
        if (mine.peak_reserved > its.peak_reserved || mine.move_ns > its.move_ns + more)
            return false;
    }
    return true;
}

bool sg_tune_no_worse(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate)
{
    return candidate_no_worse_on(search, candidate, search->basis == SG_TUNE_FIRST_PARTS);
}

/* True where `a` is as good as `b` but for noise. */
static bool candidate_within_noise(const struct sg_tune_search *search, const struct sg_tune_candidate *a,
    const struct sg_tune_candidate *b)
{
    const struct sg_tune_figures one = sg_tune_chosen_by(search, a), other = sg_tune_chosen_by(search, b);
    return one.ooms <= other.ooms && (double)one.reserved <= (1 + SG_TUNE_NOISE) * (double)other.reserved;
}

/* Another key has to halve the driver calls to be worth it. */
static double candidate_effort(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate)
{
    return candidate->setting.keys + log2((double)sg_tune_chosen_by(search, candidate).calls + 1);
}

/* The least that one of the settings which guides paste reserves, with as few failures as `least`. */
static uint64_t candidates_best_reference(const struct sg_tune_search *search, const struct sg_tune_candidate *least)
{
    uint64_t reference = UINT64_MAX, ooms = sg_tune_chosen_by(search, least).ooms;
    for (size_t i = 0; i < search->count; i++) {
        const struct sg_tune_candidate *candidate = search->candidate[i];
        const struct sg_tune_figures figures = sg_tune_chosen_by(search, candidate);
        if (candidate->reference && sg_tune_no_worse(search, candidate) && figures.ooms == ooms &&
            figures.reserved < reference)
            reference = figures.reserved;
    }
    return reference;
}

size_t sg_tune_best(const struct sg_tune_search *search)
{
    size_t best = 0;
    for (size_t i = 0; i < search->count; i++) {
        if (sg_tune_no_worse(search, search->candidate[i]) &&
            sg_tune_is_better(search, search->candidate[i], search->candidate[best]))
            best = i;
    }
    const struct sg_tune_candidate *least = search->candidate[best];
    uint64_t reference = candidates_best_reference(search, least);
    for (size_t i = 0; i < search->count; i++) {
        const struct sg_tune_candidate *candidate = search->candidate[i];
        if (sg_tune_no_worse(search, candidate) && sg_tune_chosen_by(search, candidate).reserved <= reference &&
            candidate_within_noise(search, candidate, least) &&
            candidate_effort(search, candidate) < candidate_effort(search, search->candidate[best]))
            best = i;
    }
    return best;
}

uint64_t sg_tune_doubt(const struct sg_tune_search *search)
{
    const struct sg_tune_candidate *current = search->candidate[search->current];
    uint64_t recorded = 0;
    for (size_t i = 0; i < search->traces; i++) {
        if (!search->trace[i].reserved || search->trace[i].unknown_card)
            return 0;
        recorded += search->trace[i].reserved;
    }
    if (!search->is_recorded || search->limit || search->space->policy != SG_POLICY_SEGALLOC || !current->done)
        return 0;
    return recorded > current->reserved ? recorded - current->reserved : current->reserved - recorded;
}

/* The setting to recommend by the parts of the traces that settings are chosen on. */
static size_t choice_recommend(const struct sg_tune_search *search)
{
    size_t best = sg_tune_best(search);
    const struct sg_tune_figures figures = sg_tune_chosen_by(search, search->candidate[best]);
    if (figures.ooms || candidate_within_noise(search, search->candidate[0], search->candidate[best]))
        return 0; /* a setting under which the program runs out is none to recommend */
    const struct sg_tune_candidate *current = search->candidate[search->current];
    const struct sg_tune_figures now = sg_tune_chosen_by(search, current);
    if (!now.ooms && now.reserved <= figures.reserved + sg_tune_doubt(search))
        return search->current;
    if (sg_tune_no_worse(search, current) && candidate_within_noise(search, current, search->candidate[best]))
        return search->current;
    return best;
}

bool sg_tune_is_refuted(const struct sg_tune_search *search)
{
    return search->basis == SG_TUNE_FIRST_PARTS &&
           !candidate_no_worse_on(search, search->candidate[choice_recommend(search)], false);
}

size_t sg_tune_recommend(const struct sg_tune_search *search)
{
    return sg_tune_is_refuted(search) ? 0 : choice_recommend(search);
}
