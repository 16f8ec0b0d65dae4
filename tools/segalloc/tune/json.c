/* The result of a search, as JSON. */
#include "tune/report.h"

#include <stdlib.h>

#include "tune/choice.h"
#include "tune/play.h"
#include "tune/steady.h"

static bool has_rest(const struct sg_tune_search *search)
{
    return search->candidate[0]->rest.calls || search->candidate[0]->rest.reserved;
}

static json_t *json_figures(const struct sg_tune_figures *figures, bool known)
{
    if (!known)
        return json_null();
    json_t *result = sg_json_object(NULL);
    SG_JSON_NUMBERS(result, {"peak_reserved_bytes", figures->reserved}, {"driver_calls", figures->calls},
        {"ooms", figures->ooms});
    return result;
}

static json_t *json_part(const struct sg_play_part *part, bool known)
{
    const struct sg_tune_figures figures = {part->peak_reserved, part->calls, part->ooms};
    return json_figures(&figures, known);
}

/* The figures of one trace under a setting. */
static json_t *json_play(const struct sg_play_result *play)
{
    uint64_t calls = 0;
#define CALL(name) calls += play->calls.name;
    SG_PLAY_CALLS(CALL)
#undef CALL
    json_t *result = json_figures(&(struct sg_tune_figures){play->peak_reserved, calls, play->ooms}, true);
    sg_json_set(result, "first", json_part(&play->first, play->parted));
    sg_json_set(result, "rest", json_part(&play->rest, play->parted));
    return result;
}

static json_t *json_candidate(const struct sg_tune_search *search, size_t index)
{
    const struct sg_tune_candidate *candidate = search->candidate[index];
    json_t *result = sg_json_object(NULL), *traces = sg_json_array();
    sg_json_set_text(result, "conf", candidate->setting.conf);
    SG_JSON_NUMBERS(result, {"peak_reserved_bytes", candidate->reserved}, {"driver_calls", candidate->calls},
        {"ooms", candidate->ooms}, {"pages_moved", candidate->pages_moved}, {"bytes_moved", candidate->bytes_moved});
    if (search->space->policy == SG_POLICY_SEGALLOC) {
        json_t *us = sg_json_object(NULL);
        sg_json_set(us, "growth", sg_json_real((double)candidate->growth_ns / 1000, 1));
        sg_json_set(us, "moves", sg_json_real((double)candidate->move_ns / 1000, 1));
        sg_json_set(result, "driver_us", us);
    }
    sg_json_set(result, "first", json_figures(&candidate->first, true));
    sg_json_set(result, "rest", json_figures(&candidate->rest, has_rest(search)));
    for (size_t i = 0; i < search->traces; i++)
        sg_json_add(traces, json_play(&candidate->result[i]));
    sg_json_set(result, "traces", traces);
    return result;
}

static json_t *json_list(const struct sg_tune_search *search, bool front)
{
    json_t *list = sg_json_array();
    for (size_t i = 0; i < search->count; i++)
        if (search->candidate[i]->done && (!front || search->candidate[i]->front))
            sg_json_add(list, json_candidate(search, i));
    return list;
}

static const char *const bases[] =
    {[SG_TUNE_FIRST_PARTS] = "first_parts", [SG_TUNE_UNDIVIDED] = "undivided", [SG_TUNE_RUNS_OUT] = "runs_out"};

static json_t *json_traces(const struct sg_tune_search *search)
{
    json_t *traces = sg_json_array();
    for (size_t i = 0; i < search->traces; i++) {
        const struct sg_tune_trace *trace = &search->trace[i];
        json_t *result = sg_json_object(NULL);
        sg_json_set_text(result, "path", trace->path);
        SG_JSON_NUMBERS(result, {"events", trace->events}, {"peak_requested_bytes", trace->peak_live},
            {"limit_bytes", sg_tune_card(search, i)});
        sg_json_set_flag(result, "card_known", search->limit || !trace->unknown_card);
        sg_json_set_flag(result, "complete", !trace->end_text);
        SG_JSON_NUMBERS(result, {"failures", trace->failures + trace->failures_outside});
        sg_json_set_known(result, "first_part_events", trace->part_end, trace->part_end);
        sg_json_set_known(result, "recorded_reserved_bytes", trace->reserved, trace->reserved);
        sg_json_add(traces, result);
    }
    return traces;
}

/* The setting that is recommended, and why. */
static json_t *json_recommended(const struct sg_tune_search *search)
{
    size_t best = sg_tune_recommend(search);
    const struct sg_tune_candidate *candidate = search->candidate[best];
    char reason[SG_TUNE_REASON], *line = sg_tune_line(search, best);
    json_t *result = json_candidate(search, best);
    sg_json_set_known(result, "lagging_reserved_bytes", candidate->lagging, candidate->lagging);
    sg_json_set_flag(result, "lag_decides", sg_tune_lag_decides(search, candidate));
    sg_json_set_text(result, "reason", sg_tune_reason(search, best, reason));
    sg_json_set_text(result, "line", line);
    free(line);
    return result;
}

json_t *sg_tune_json(const struct sg_tune_search *search, double seconds)
{
    bool current = search->space->has_current && search->candidate[search->current]->done;
    json_t *result = sg_json_object("segalloc.tune/1");
    sg_json_set_text(result, "for", search->space->policy == SG_POLICY_PYTORCH ? "pytorch" : "segalloc");
    sg_json_set(result, "traces", json_traces(search));
    sg_json_set_text(result, "chosen_on", bases[search->basis]);
    sg_json_set(result, "candidates", json_list(search, false));
    sg_json_set(result, "pareto", json_list(search, true));
    sg_json_set(result, "default", json_candidate(search, 0));
    sg_json_set(result, "current", current ? json_candidate(search, search->current) : json_null());
    sg_json_set(result, "recommended", json_recommended(search));
    sg_json_set_flag(result, "complete", search->complete);
    if (seconds >= 0) {
        SG_JSON_NUMBERS(result, {"threads", search->threads});
        sg_json_set(result, "seconds", sg_json_real(seconds, 3));
    }
    return result;
}
