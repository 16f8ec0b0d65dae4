/* What a search found, as JSON. */
#include <inttypes.h>
#include <stdlib.h>

#include "tool.h"
#include "tune/report.h"
#include "tune/steady.h"

static bool has_rest(const struct sg_tune_search *search)
{
    return search->candidate[0]->rest.calls || search->candidate[0]->rest.reserved;
}

static void json_figures(FILE *out, const char *name, const struct sg_tune_figures *figures, bool known)
{
    if (known)
        fprintf(out, ",\"%s\":{\"peak_reserved_bytes\":%" PRIu64 ",\"driver_calls\":%" PRIu64 ",\"ooms\":%" PRIu64 "}",
            name, figures->reserved, figures->calls, figures->ooms);
    else
        fprintf(out, ",\"%s\":null", name);
}

static void json_part(FILE *out, const char *name, const struct sg_play_part *part, bool known)
{
    const struct sg_tune_figures figures = {part->peak_reserved, part->calls, part->ooms};
    json_figures(out, name, &figures, known);
}

static void json_result(FILE *out, const struct sg_tune_search *search, const struct sg_tune_candidate *candidate)
{
    fprintf(out,
        ",\"peak_reserved_bytes\":%" PRIu64 ",\"driver_calls\":%" PRIu64 ",\"ooms\":%" PRIu64
        ",\"pages_moved\":%" PRIu64 ",\"bytes_moved\":%" PRIu64,
        candidate->reserved, candidate->calls, candidate->ooms, candidate->pages_moved, candidate->bytes_moved);
    if (search->space->policy == SG_POLICY_SEGALLOC)
        fprintf(out, ",\"driver_us\":{\"growth\":%.1f,\"moves\":%.1f}", (double)candidate->growth_ns / 1000,
            (double)candidate->move_ns / 1000);
    json_figures(out, "first", &candidate->first, true);
    json_figures(out, "rest", &candidate->rest, has_rest(search));
    fputs(",\"traces\":[", out);
    for (size_t i = 0; i < search->traces; i++) {
        const struct sg_play_result *result = &candidate->result[i];
        uint64_t calls = 0;
#define CALL(name) calls += result->calls.name;
        SG_PLAY_CALLS(CALL)
#undef CALL
        fprintf(out, "%s{\"peak_reserved_bytes\":%" PRIu64 ",\"driver_calls\":%" PRIu64 ",\"ooms\":%" PRIu64,
            i ? "," : "", result->peak_reserved, calls, result->ooms);
        json_part(out, "first", &result->first, result->parted);
        json_part(out, "rest", &result->rest, result->parted);
        putc('}', out);
    }
    putc(']', out);
}

static void json_candidate(FILE *out, const struct sg_tune_search *search, size_t index)
{
    fputs("{\"conf\":", out);
    sg_tool_json_write(out, search->candidate[index]->setting.conf);
    json_result(out, search, search->candidate[index]);
    putc('}', out);
}

static void json_list(FILE *out, const struct sg_tune_search *search, const char *name, bool front)
{
    const char *comma = "";
    fprintf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < search->count; i++) {
        if (!search->candidate[i]->done || (front && !search->candidate[i]->front))
            continue;
        fputs(comma, out);
        json_candidate(out, search, i);
        comma = ",";
    }
    putc(']', out);
}

static const char *const bases[] =
    {[SG_TUNE_FIRST_PARTS] = "first_parts", [SG_TUNE_UNDIVIDED] = "undivided", [SG_TUNE_RUNS_OUT] = "runs_out"};

static void json_traces(FILE *out, const struct sg_tune_search *search)
{
    fputs(",\"traces\":[", out);
    for (size_t i = 0; i < search->traces; i++) {
        const struct sg_tune_trace *trace = &search->trace[i];
        fputs(i ? ",{\"path\":" : "{\"path\":", out);
        sg_tool_json_write(out, trace->path);
        fprintf(out,
            ",\"events\":%" PRIu64 ",\"peak_requested_bytes\":%" PRIu64 ",\"limit_bytes\":%" PRIu64
            ",\"card_known\":%s,\"complete\":%s,\"failures\":%" PRIu64,
            trace->events, trace->peak_live, sg_tune_card(search, i),
            search->limit || !trace->unknown_card ? "true" : "false", trace->end_text ? "false" : "true",
            trace->failures);
        if (trace->part_end)
            fprintf(out, ",\"first_part_events\":%" PRIu64, trace->part_end);
        else
            fputs(",\"first_part_events\":null", out);
        if (trace->reserved)
            fprintf(out, ",\"recorded_reserved_bytes\":%" PRIu64 "}", trace->reserved);
        else
            fputs(",\"recorded_reserved_bytes\":null}", out);
    }
    putc(']', out);
}

void sg_tune_write_json(FILE *out, const struct sg_tune_search *search, double seconds)
{
    size_t best = sg_tune_recommend(search);
    char reason[SG_TUNE_REASON], *line = sg_tune_line(search, best);
    fprintf(out, "{\"schema\":\"segalloc.tune/1\",\"for\":\"%s\"",
        search->space->policy == SG_POLICY_PYTORCH ? "pytorch" : "segalloc");
    json_traces(out, search);
    fprintf(out, ",\"chosen_on\":\"%s\"", bases[search->basis]);
    json_list(out, search, "candidates", false);
    json_list(out, search, "pareto", true);
    fputs(",\"default\":", out);
    json_candidate(out, search, 0);
    fputs(",\"current\":", out);
    if (search->space->has_current && search->candidate[search->current]->done)
        json_candidate(out, search, search->current);
    else
        fputs("null", out);
    fputs(",\"recommended\":{\"conf\":", out);
    sg_tool_json_write(out, search->candidate[best]->setting.conf);
    json_result(out, search, search->candidate[best]);
    fprintf(out,
        search->candidate[best]->lagging ? ",\"lagging_reserved_bytes\":%" PRIu64 : ",\"lagging_reserved_bytes\":null",
        search->candidate[best]->lagging);
    fprintf(out, ",\"lag_decides\":%s", sg_tune_lag_decides(search, search->candidate[best]) ? "true" : "false");
    fputs(",\"reason\":", out);
    sg_tool_json_write(out, sg_tune_reason(search, best, reason));
    fputs(",\"line\":", out);
    sg_tool_json_write(out, line);
    fprintf(out, "},\"complete\":%s", search->complete ? "true" : "false");
    if (seconds >= 0)
        fprintf(out, ",\"threads\":%u,\"seconds\":%.3f", search->threads, seconds);
    putc('}', out);
    free(line);
}
