#include "selftest/selftest.h"

#include <stdio.h>
#include <string.h>

#include "json.h"

enum { NAME_WIDTH = 14 };

const char *sg_selftest_word(enum sg_selftest_level level)
{
    static const char *const words[] = {[SG_SELFTEST_AS_ASSUMED] = "as_assumed", [SG_SELFTEST_LEFT_OUT] = "left_out",
        [SG_SELFTEST_DIFFERS] = "differs", [SG_SELFTEST_UNUSABLE] = "unusable"};
    return words[level];
}

/* A check's name as it is read: shared_memory is "shared memory". */
static char *print_name(const char *name, char ret[32])
{
    snprintf(ret, 32, "%s", name);
    for (char *at = ret; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    return ret;
}

static void print_conclusion(const struct sg_selftest *selftest)
{
    int differ = 0;
    for (int i = 0; i < SG_SELFTEST_CHECKS; i++)
        differ += selftest->verdict[i].level >= SG_SELFTEST_DIFFERS;
    if (!differ)
        printf("%s, driver for CUDA %d.%d: all as assumed (%.0f s)\n", selftest->device, selftest->driver / 1000,
            selftest->driver % 1000 / 10, selftest->seconds);
    else
        printf("%s, driver for CUDA %d.%d: %d of %d checks differ; %s (%.0f s)\n", selftest->device, selftest->driver / 1000,
            selftest->driver % 1000 / 10, differ, SG_SELFTEST_CHECKS,
            selftest->level == SG_SELFTEST_UNUSABLE ? "the allocator can't do its work here" : "the allocator can live with that",
            selftest->seconds);
}

static void print_verdicts(const struct sg_selftest *selftest)
{
    static const char *const openings[] = {[SG_SELFTEST_AS_ASSUMED] = "ok", [SG_SELFTEST_LEFT_OUT] = "-",
        [SG_SELFTEST_DIFFERS] = "differs", [SG_SELFTEST_UNUSABLE] = "unusable"};
    char settings[SG_SELFTEST_SETTINGS], name[32];
    for (int i = 0; i < SG_SELFTEST_CHECKS; i++) {
        const struct sg_selftest_verdict *verdict = &selftest->verdict[i];
        printf("%-8s  %-*s %s%s%s\n", openings[verdict->level], NAME_WIDTH, print_name(verdict->check, name), verdict->text,
            *verdict->setting ? "; " : "", verdict->setting);
    }
    print_conclusion(selftest);
    if (*sg_selftest_settings(selftest, settings, sizeof settings) && !*selftest->conf_path)
        printf("Would change: %s%s\n", settings,
            selftest->apply_failed ? ", which could not be written" : " (--apply writes that for this GPU and driver)");
    if (*selftest->conf_path && *settings)
        printf("Changed for this GPU and driver: %s, in %s\n", settings, selftest->conf_path);
    else if (*selftest->conf_path)
        puts("Nothing is to be changed for this GPU and driver");
    if (*selftest->facts_path)
        printf("Facts: %s\n", selftest->facts_path);
}

void sg_selftest_print_text(const struct sg_selftest_run *run)
{
    for (int i = 0; i < run->count; i++) {
        if (run->count > 1 || run->left || run->device[i]->ordinal)
            printf("%sDevice %d\n", i ? "\n" : "", run->device[i]->ordinal);
        if (!*run->device[i]->problem)
            print_verdicts(run->device[i]);
        else if (i) /* that of the first is a message */
            printf("-         %s\n", run->device[i]->problem);
    }
    if (run->left)
        printf("\nThe minute was over before device %d%s: --device %d asks it alone.\n", run->first_left,
            run->left > 1 ? " and those after it" : "", run->first_left);
}

static json_t *json_verdicts(const struct sg_selftest *selftest)
{
    json_t *verdicts = sg_json_array();
    for (int i = 0; i < SG_SELFTEST_CHECKS; i++) {
        const struct sg_selftest_verdict *verdict = &selftest->verdict[i];
        json_t *object = sg_json_object(NULL);
        sg_json_set_text(object, "check", verdict->check);
        sg_json_set_text(object, "verdict", sg_selftest_word(verdict->level));
        sg_json_set_text(object, "text", verdict->text);
        sg_json_set_text(object, "setting", *verdict->setting ? verdict->setting : NULL);
        sg_json_add(verdicts, object);
    }
    return verdicts;
}

/* Sets the members that each device has; those of the first stand on top too. */
static void json_set_device(json_t *result, const struct sg_selftest *selftest, enum sg_selftest_level level)
{
    char settings[SG_SELFTEST_SETTINGS];
    bool asked = !*selftest->problem;
    sg_selftest_settings(selftest, settings, sizeof settings);
    sg_json_set_text(result, "result", asked ? sg_selftest_word(level) : "not_asked");
    sg_json_set_text(result, "problem", asked ? NULL : selftest->problem);
    sg_json_set_text(result, "device", *selftest->device ? selftest->device : NULL);
    sg_json_set_known(result, "driver_version", (uint64_t)selftest->driver, asked);
    sg_json_set_flag(result, "simulated", selftest->simulated);
    sg_json_set(result, "seconds", sg_json_real(selftest->seconds, 3));
    sg_json_set(result, "verdicts", asked ? json_verdicts(selftest) : sg_json_array());
    sg_json_set_text(result, "settings", settings);
    sg_json_set_text(result, "facts_file", *selftest->facts_path ? selftest->facts_path : NULL);
    sg_json_set_text(result, "conf_file", *selftest->conf_path ? selftest->conf_path : NULL);
}

void sg_selftest_print_json(const struct sg_selftest_run *run)
{
    json_t *result = sg_json_object("segalloc.selftest/1"), *devices = sg_json_array();
    json_set_device(result, run->device[0], run->level);
    for (int i = 0; i < run->count; i++) {
        json_t *device = sg_json_object(NULL);
        sg_json_set_signed(device, "ordinal", run->device[i]->ordinal);
        json_set_device(device, run->device[i], run->device[i]->level);
        sg_json_add(devices, device);
    }
    sg_json_set(result, "devices", devices);
    sg_json_set_signed(result, "devices_left", run->left);
    sg_json_print(result);
}
