#include "rehearse/budget.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/part_peaks.h"
#include "json.h"
#include "rehearse/rehearse.h"
#include "size.h"
#include "tool.h"

#define BUDGET_SCHEMA "segalloc.budget/1"

/* The rows: members of the file, as a reader knows them. Those of one number come first. */
static const struct budget_kind {
    const char *member, *row;
    bool many;
} kinds[] = {
    {"smallest_card_bytes", "smallest card", false},
    {"peak_bytes", "peak", false},
    {"functions", "function", true},
    {"phases", "phase", true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static bool budget_is_bytes(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* NULL, or what is wrong with a budget that was read. */
static const char *budget_is_wrong(const json_t *budget)
{
    const char *name, *schema = json_string_value(json_object_get(budget, "schema"));
    json_t *each;
    if (!schema || strcmp(schema, BUDGET_SCHEMA) != 0)
        return "it is no budget: \"schema\" is not \"" BUDGET_SCHEMA "\"";
    const json_t *slack = json_object_get(budget, "slack_percent");
    if (slack && (!json_is_number(slack) || json_number_value(slack) < 0))
        return "\"slack_percent\" takes a number from 0";
    for (int i = 0; i < KINDS; i++) {
        json_t *value = json_object_get(budget, kinds[i].member);
        if (!value)
            continue;
        if (kinds[i].many ? !json_is_object(value) : !budget_is_bytes(value))
            return "a row is no number of bytes";
        json_object_foreach(kinds[i].many ? value : NULL, name,
            each) if (!budget_is_bytes(each)) return "a row is no number of bytes";
    }
    return NULL;
}

/* Reads a budget; NULL after a line on stderr. */
static json_t *budget_load(const char *verb, const char *path)
{
    json_error_t error;
    json_t *budget = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const char *wrong = budget ? budget_is_wrong(budget) : NULL;
    if (!budget && error.line > 0)
        sg_tool_message(verb, "%s, line %d: %s; --write-budget writes one", path, error.line, error.text);
    else if (!budget)
        sg_tool_message(verb, "%s can't be read: %s; --write-budget writes one", path, strerror(errno));
    else if (wrong)
        sg_tool_message(verb, "%s: %s", path, wrong);
    if (budget && wrong) {
        json_decref(budget);
        budget = NULL;
    }
    return budget;
}

/* The file that is written first: "budget.json.4711". NULL: no host memory. */
static char *budget_beside(const struct sg_budget *budget)
{
    char *beside = NULL;
    return asprintf(&beside, "%s.%d", budget->written_to, (int)getpid()) < 0 ? NULL : beside;
}

/* True if a budget can be written there. Asked before the run, which may take long. */
static bool budget_can_be_written(const char *verb, const struct sg_budget *budget)
{
    char *beside = budget_beside(budget);
    int file = beside ? open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1, error = errno;
    if (file < 0)
        sg_tool_message(verb, "%s can't be written: %s", budget->written_to, strerror(error));
    else
        (void)(close(file), unlink(beside));
    free(beside);
    return file >= 0;
}

int sg_budget_begin(const char *verb, struct sg_budget *budget)
{
    if (budget->held_against && !(budget->allowed = budget_load(verb, budget->held_against)))
        return SG_EXIT_ERROR;
    if (budget->written_to && !budget->replaces && access(budget->written_to, F_OK) == 0)
        return sg_tool_error(verb, "%s is there already; -f replaces it", budget->written_to);
    if (budget->written_to && !budget_can_be_written(verb, budget))
        return SG_EXIT_ERROR;
    sg_budget_clear(budget);
    return 0;
}

void sg_budget_free(struct sg_budget *budget)
{
    json_decref(budget->allowed);
    json_decref(budget->functions);
    json_decref(budget->phases);
}

void sg_budget_clear(struct sg_budget *budget)
{
    json_decref(budget->functions);
    json_decref(budget->phases);
    budget->functions = sg_json_object(NULL);
    budget->phases = sg_json_object(NULL);
}

int sg_budget_read(struct sg_budget *budget, struct sg_trace_reader *reader)
{
    return sg_part_peaks_read(reader, budget->functions, budget->phases);
}

bool sg_budget_is_known(const struct sg_rehearse *rehearse)
{
    return rehearse->outcome != SG_REHEARSE_STOPPED && !rehearse->interrupted && !rehearse->cut && !rehearse->adapts &&
           !rehearse->differs && rehearse->processes > 0;
}

/* The run's budget as the file has it. */
static json_t *budget_of_run(const struct sg_rehearse *rehearse)
{
    json_t *result = sg_json_object(BUDGET_SCHEMA);
    SG_JSON_NUMBERS(result, {"smallest_card_bytes", rehearse->alone.segalloc}, {"peak_bytes", rehearse->peak_taken});
    sg_json_set(result, "functions", json_incref(rehearse->budget->functions));
    sg_json_set(result, "phases", json_incref(rehearse->budget->phases));
    return result;
}

/* The slack of the file that is replaced stays, for the user has set it. */
static json_t *budget_slack(const struct sg_budget *budget)
{
    json_t *before = budget->replaces ? json_load_file(budget->written_to, 0, NULL) : NULL;
    json_t *slack = before && !budget_is_wrong(before) ? json_object_get(before, "slack_percent") : NULL;
    slack = slack ? json_incref(slack) : json_integer(0);
    json_decref(before);
    return slack;
}

/* Writes it beside its place and moves it there, so that a full disk leaves what was there. */
int sg_budget_write(const struct sg_rehearse *rehearse)
{
    const struct sg_budget *budget = rehearse->budget;
    if (!budget->written_to)
        return 0;
    if (!sg_budget_is_known(rehearse))
        return sg_tool_error(rehearse->verb, "no budget is written to %s: what the program needs is not known",
            budget->written_to);
    char *beside = budget_beside(budget);
    if (!beside)
        return sg_tool_error(rehearse->verb, "no host memory left");
    json_t *written = budget_of_run(rehearse);
    sg_json_set(written, "slack_percent", budget_slack(budget));
    FILE *file = fopen(beside, "wx");
    bool well = file && json_dumpf(written, file, JSON_INDENT(1) | JSON_SORT_KEYS) == 0 && fputc('\n', file) != EOF;
    int error = errno;
    if (file && fclose(file) != 0 && well) {
        well = false;
        error = errno;
    }
    if (well && rename(beside, budget->written_to) != 0) {
        well = false;
        error = errno;
    }
    if (!well && file)
        (void)unlink(beside);
    json_decref(written);
    free(beside);
    return well ? 0 : sg_tool_error(rehearse->verb, "%s can't be written: %s", budget->written_to, strerror(error));
}

/* Adds a row where it is over. Every row is counted. */
static void budget_hold(json_t *compared, const struct budget_kind *kind, const char *name, uint64_t bytes,
    const json_t *allowed, double slack)
{
    uint64_t budget = (uint64_t)json_integer_value(allowed);
    json_object_set_new(compared, "rows", json_integer(json_integer_value(json_object_get(compared, "rows")) + 1));
    if (bytes <= budget || (double)(bytes - budget) <= slack / 100 * (double)budget)
        return;
    json_t *row = sg_json_object(NULL);
    sg_json_set_text(row, "row", kind->row);
    sg_json_set_text(row, "name", name);
    SG_JSON_NUMBERS(row, {"bytes", bytes}, {"budget_bytes", budget}, {"over_bytes", bytes - budget});
    sg_json_add(json_object_get(compared, "over"), row);
}

static uint64_t budget_over(const json_t *row)
{
    return (uint64_t)json_integer_value(json_object_get(row, "over_bytes"));
}

/* The most first, and of two alike the first as it was. */
static void budget_sort(json_t *rows)
{
    for (size_t i = 1; i < json_array_size(rows); i++) {
        size_t at = i;
        json_t *row = json_incref(json_array_get(rows, i));
        while (at > 0 && budget_over(json_array_get(rows, at - 1)) < budget_over(row))
            at--;
        json_array_remove(rows, i);
        json_array_insert_new(rows, at, row);
    }
}

json_t *sg_budget_compare(const struct sg_rehearse *rehearse)
{
    const struct sg_budget *budget = rehearse->budget;
    if (!budget->held_against)
        return json_null();
    bool known = sg_budget_is_known(rehearse);
    double slack = json_number_value(json_object_get(budget->allowed, "slack_percent"));
    json_t *compared = sg_json_object(NULL), *run = budget_of_run(rehearse), *each;
    const char *name;
    sg_json_set_text(compared, "file", budget->held_against);
    sg_json_set_flag(compared, "known", known);
    SG_JSON_NUMBERS(compared, {"rows", 0});
    sg_json_set(compared, "over", sg_json_array());
    for (int i = 0; known && i < KINDS; i++) {
        json_t *own = json_object_get(run, kinds[i].member),
               *allowed = json_object_get(budget->allowed, kinds[i].member);
        /* A kind that was taken out of the file is not held against anything. */
        if (allowed && !kinds[i].many)
            budget_hold(compared, &kinds[i], NULL, (uint64_t)json_integer_value(own), allowed, slack);
        json_object_foreach(allowed && kinds[i].many ? own : NULL, name, each) budget_hold(compared, &kinds[i], name,
            (uint64_t)json_integer_value(each), json_object_get(allowed, name), slack);
    }
    budget_sort(json_object_get(compared, "over"));
    json_decref(run);
    return compared;
}

bool sg_budget_is_over(const json_t *compared)
{
    return json_array_size(json_object_get(compared, "over")) > 0;
}

static const char *budget_size(const json_t *row, const char *member, char text[SG_SIZE_TEXT])
{
    return sg_size_format((uint64_t)json_integer_value(json_object_get(row, member)), text);
}

/* A table in Markdown, to be pasted where a change is discussed. */
void sg_budget_print(const json_t *compared)
{
    const char *file = json_string_value(json_object_get(compared, "file"));
    const json_t *over = json_object_get(compared, "over");
    int64_t rows = json_integer_value(json_object_get(compared, "rows"));
    char by[SG_SIZE_TEXT], now[SG_SIZE_TEXT], budget[SG_SIZE_TEXT];
    size_t i;
    json_t *row;
    if (!json_is_true(json_object_get(compared, "known"))) {
        printf("Budget %s: not held against this run, for what the program needs is not known.\n", file);
        return;
    }
    if (!json_array_size(over)) {
        printf("Budget %s: within, in all %" PRId64 " row%s.\n", file, rows, sg_plural((uint64_t)rows));
        return;
    }
    printf("Budget %s: over in %zu of %" PRId64
           " row%s.\n\n| over by | what | needs | budget |\n|---:|---|---:|---:|\n",
        file, json_array_size(over), rows, sg_plural((uint64_t)rows));
    json_array_foreach(over, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        printf("| %s | %s%s", budget_size(row, "over_bytes", by), json_string_value(json_object_get(row, "row")),
            name ? " " : "");
        if (name)
            sg_tool_print_plain(name);
        printf(" | %s | %s |\n", budget_size(row, "bytes", now), budget_size(row, "budget_bytes", budget));
    }
    putchar('\n');
}
