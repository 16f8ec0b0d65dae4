#include "selftest/judging.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "driver/cuda_abi.h"

__attribute__((format(printf, 3, 4))) void sg_verdict_set(struct sg_judging *judging, enum sg_selftest_level level,
    const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(judging->verdict->text, sizeof judging->verdict->text, format, arguments);
    va_end(arguments);
    judging->verdict->level = level;
}

__attribute__((format(printf, 2, 3))) void sg_verdict_suggest(struct sg_judging *judging, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(judging->verdict->setting, sizeof judging->verdict->setting, format, arguments);
    va_end(arguments);
}

const char *sg_judging_code_name(int code)
{
    switch (code) {
#define RESULT(name, number, text) \
    case number:                   \
        return #name;
#include "driver/cuda_result.def"
    default:
        return "no error that is known";
    }
}

/* The next line of `row` from *at on that has `key`; NULL: none is left. */
const json_t *sg_lines_next(const struct sg_selftest *selftest, const char *row, const char *key, size_t *at)
{
    for (; *at < json_array_size(selftest->lines);) {
        const json_t *line = json_array_get(selftest->lines, (*at)++);
        const char *own = json_string_value(json_object_get(line, "row"));
        if (own && strcmp(own, row) == 0 && (!key || json_object_get(line, key)))
            return line;
    }
    return NULL;
}

const json_t *sg_lines_first(const struct sg_selftest *selftest, const char *row, const char *key)
{
    size_t at = 0;
    return sg_lines_next(selftest, row, key, &at);
}

json_int_t sg_line_number(const json_t *line, const char *key)
{
    return json_integer_value(json_object_get(line, key));
}

/* A fact that is a number; -1: it is not known. */
json_int_t sg_judging_fact(const struct sg_judging *judging, const char *name)
{
    const json_t *value = sg_selftest_fact(judging->selftest, name);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

bool sg_judging_note_call(struct sg_judging *judging, const char *name, int code, enum sg_selftest_level worst)
{
    for (int i = 0; i < judging->calls; i++)
        if (strcmp(judging->call[i].name, name) == 0 && judging->call[i].code == code) {
            bool said = judging->call[i].level >= worst;
            judging->call[i].level = said ? judging->call[i].level : worst;
            return said;
        }
    if (judging->calls < SG_JUDGING_CALLS) {
        snprintf(judging->call[judging->calls].name, SG_JUDGING_CALL, "%s", name);
        judging->call[judging->calls].code = code;
        judging->call[judging->calls++].level = worst;
    }
    return false;
}

void sg_judging_call_name(const char *text, char ret[SG_JUDGING_CALL])
{
    const char *at = text;
    while ((at = strstr(at, "cu")) && !isupper((unsigned char)at[2]))
        at += 2;
    at = at ? at : text;
    size_t length = strcspn(at, "(");
    snprintf(ret, SG_JUDGING_CALL, "%.*s", (int)length, at);
}

/* The worst that may come of a call in any check. Nothing more does where a setting avoids it, or where pages serve instead. */
static enum sg_selftest_level call_worst(const struct sg_judging *judging, enum sg_selftest_level level,
    const char *name)
{
    bool plain = strcmp(name, "cuMemAlloc_v2") == 0 || strcmp(name, "cuMemFree_v2") == 0;
    return judging->setting || plain ? SG_SELFTEST_UNUSABLE : level;
}

/* The verdict on a call that failed. */
void sg_judging_call(struct sg_judging *judging, enum sg_selftest_level level, const char *name, int code)
{
    if (sg_judging_note_call(judging, name, code, call_worst(judging, level, name))) {
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "not known, since %s fails here too", name);
        return;
    }
    sg_verdict_set(judging, level, "%s answers %d (%s): %s", name, code, sg_judging_code_name(code), judging->comes_to);
    if (judging->setting)
        sg_verdict_suggest(judging, "%s", judging->setting);
}

/* True if a row of the check has failed, and that is the verdict. */
bool sg_judging_failed_row(struct sg_judging *judging, const char *row, enum sg_selftest_level worst)
{
    const json_t *line = sg_lines_first(judging->selftest, row, "error"), *code = json_object_get(line, "code");
    if (!line)
        return false;
    const char *error = json_string_value(json_object_get(line, "error"));
    char name[SG_JUDGING_CALL];
    sg_judging_call_name(error, name);
    if (judging->calls && strncmp(name, "cu", 2) != 0) {
        sg_verdict_set(judging, SG_SELFTEST_LEFT_OUT, "not known, since %s fails here too", judging->call[0].name);
        return true;
    }
    if (code) {
        sg_judging_call(judging, worst, name, (int)json_integer_value(code));
        return true;
    }
    sg_verdict_set(judging, worst, "the row \"%s\" failed: %.200s: %s", row, error, judging->comes_to);
    if (judging->setting)
        sg_verdict_suggest(judging, "%s", judging->setting);
    return true;
}

bool sg_judging_has_pages(const struct sg_judging *judging)
{
    return sg_judging_fact(judging, "vmm") == 1;
}
