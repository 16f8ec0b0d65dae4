#include "tune/play.h"

#include <string.h>

uint64_t sg_tune_card(const struct sg_tune_search *search, size_t index)
{
    uint64_t own = search->trace[index].device_bytes;
    return search->limit ? search->limit : own ? own : SG_PLAY_CARD;
}

int sg_tune_play(const struct sg_tune_search *search, const struct sg_tune_candidate *candidate,
    struct sg_tune_cursor *cursor, uint64_t lag, struct sg_play_result *ret, char error[SG_PLAY_ERROR])
{
    const struct sg_tune_trace *trace = cursor->trace;
    struct sg_play what = {
        .policy = search->space->policy,
        .conf = candidate->setting.own,
        .torch = candidate->setting.torch,
        .card_bytes = search->limit,
        .granularity = trace->granularity ? trace->granularity : SG_TUNE_GRANULARITY,
        .part_end = trace->part_end,
        .ordered = lag > 0,
        .run_ahead = lag,
        .next = sg_tune_next,
        .source = cursor,
    };
    if (!search->limit) {
        memcpy(what.card, trace->card, sizeof what.card);
        what.live_bytes = trace->peak_live;
    }
    return sg_play_run(&what, ret, error);
}
