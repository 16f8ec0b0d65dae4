/* segalloc selftest: does this machine do what the allocator takes for granted? */
#include "tool.h"

#include "json.h"
#include "selftest/selftest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLI_VERB "selftest"
#define CLI_ROWS "verbs/selftest.def"
#include "cli/rows.h"

/* The whole takes a minute at most, of which this much is left for what comes after the rows. */
#define MINUTE 60.0
#define SPARE 2.0

/* The command line. */
struct arguments {
    struct sg_launch launch;
    const char *output;
    int only; /* the device; negative: all */
    bool apply, json;
};

/* The first of the devices of the same card before this one that is at least as bad; NULL: there is none. Its facts are kept then. */
static const struct sg_selftest *worse_before(const struct sg_selftest_run *run, int number)
{
    const struct sg_selftest *own = run->device[number];
    for (int i = 0; i < number; i++)
        if (strcmp(run->device[i]->device, own->device) == 0 && run->device[i]->level >= own->level)
            return run->device[i];
    return NULL;
}

/* The settings of all devices of the card of this one: they have one file. */
static void settings_of_card(const struct sg_selftest_run *run, int number, char ret[SG_SELFTEST_SETTINGS])
{
    *ret = '\0';
    for (int i = 0; i < run->count; i++) {
        char settings[SG_SELFTEST_SETTINGS];
        if (strcmp(run->device[i]->device, run->device[number]->device) != 0)
            continue;
        sg_selftest_settings(run->device[i], settings, sizeof settings);
        for (char *rest = settings, *each; (each = strsep(&rest, ",")) != NULL;)
            if (*each && !strstr(ret, each) && strlen(ret) + strlen(each) + 2 < SG_SELFTEST_SETTINGS)
                strcat(strcat(ret, *ret ? "," : ""), each);
    }
}

/* Writes files: facts, and the settings with `apply`. False after a line that says why not. */
static bool selftest_keep(const struct sg_selftest_run *run, const struct arguments *arguments)
{
    bool well = true;
    for (int i = 0; i < run->count; i++) {
        char settings[SG_SELFTEST_SETTINGS];
        struct sg_selftest *selftest = run->device[i];
        if (*selftest->problem)
            continue;
        /* A home that can't be written to is no fault of the machine. */
        if (!worse_before(run, i) && !sg_selftest_keep(selftest, arguments->output))
            well &= !arguments->output;
        settings_of_card(run, i, settings);
        well &= !arguments->apply || sg_selftest_apply(selftest, settings);
    }
    return well;
}

/* Asks a device and judges it. NULL: no memory of the host. */
static struct sg_selftest *selftest_ask(const struct arguments *arguments, int ordinal, double until_s)
{
    struct sg_selftest *selftest = calloc(1, sizeof *selftest);
    if (!selftest)
        return NULL;
    *selftest = (struct sg_selftest){.launch = arguments->launch,
        .ordinal = ordinal,
        .until_s = until_s,
        .lines = sg_json_array(),
        .facts = sg_json_object(NULL)};
    if (sg_selftest_ask(selftest)) {
        sg_selftest_find_facts(selftest);
        sg_selftest_judge(selftest);
    }
    return selftest;
}

/* Asks each device in turn, as long as the minute lasts. A device is begun only where there is time for the slowest so far. */
static void selftest_ask_all(const struct arguments *arguments, struct sg_selftest_run *ret)
{
    double used = 0, slowest = 0;
    int first = arguments->only < 0 ? 0 : arguments->only, end = first + 1;
    for (int i = first; i < end && ret->count < SG_SELFTEST_DEVICES; i++) {
        if (i > first && used + slowest > MINUTE - SPARE) {
            ret->left = end - i;
            ret->first_left = i;
            return;
        }
        struct sg_selftest *selftest = selftest_ask(arguments, i, MINUTE - SPARE - used);
        if (!selftest)
            return;
        ret->device[ret->count++] = selftest;
        used += selftest->seconds;
        slowest = selftest->seconds > slowest ? selftest->seconds : slowest;
        ret->level = selftest->level > ret->level ? selftest->level : ret->level;
        if (arguments->only < 0 && i == first && selftest->devices > 1)
            end = selftest->devices;
    }
}

static int selftest_run(const struct arguments *arguments)
{
    static const int statuses[] = {[SG_SELFTEST_AS_ASSUMED] = SG_EXIT_OK,
        [SG_SELFTEST_LEFT_OUT] = SG_EXIT_OK,
        [SG_SELFTEST_DIFFERS] = SG_EXIT_DIFFERS,
        [SG_SELFTEST_UNUSABLE] = SG_EXIT_ERROR};
    struct sg_selftest_run run = {.count = 0};
    if (!sg_launch_prepare(&arguments->launch))
        return SG_EXIT_ERROR;
    selftest_ask_all(arguments, &run);
    if (!run.count)
        return sg_tool_error(arguments->launch.verb, "out of memory");
    const struct sg_selftest *first = run.device[0];
    bool kept = *first->problem || selftest_keep(&run, arguments);
    if (arguments->json)
        sg_selftest_print_json(&run);
    else if (!*first->problem)
        sg_selftest_print_text(&run);
    if (*first->problem)
        sg_tool_message(arguments->launch.verb, "%s", first->problem);
    int status = *first->problem || !kept ? SG_EXIT_ERROR : statuses[run.level];
    for (int i = 0; i < run.count; i++) {
        json_decref(run.device[i]->lines);
        json_decref(run.device[i]->facts);
        free(run.device[i]);
    }
    return status;
}

int sg_verb_selftest(int argc, char **argv)
{
    struct sg_cli cli;
    struct arguments arguments = {.launch = {.verb = argv[0]}, .only = -1};
    int played = sg_selftest_rows(argc, argv);
    if (played >= 0)
        return played;
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    for (int option; (option = sg_cli_next(&cli)) >= 0;) {
        char *end;
        switch ((enum option_of_verb)option) {
        case OPTION_sim:
            arguments.launch.sim = optarg;
            break;
        case OPTION_device:
            arguments.only = (int)strtol(optarg, &end, 10);
            if (end == optarg || *end || arguments.only < 0 || arguments.only >= SG_SELFTEST_DEVICES)
                return sg_tool_usage(argv[0], "--device takes a device's number from 0 to %d, not \"%s\"",
                    SG_SELFTEST_DEVICES - 1, optarg);
            break;
        case OPTION_apply:
            arguments.apply = true;
            break;
        case OPTION_output:
            arguments.output = optarg;
            break;
        case OPTION_json:
            arguments.json = true;
            break;
        }
    }
    if (cli.status)
        return cli.status;
    if (optind < argc)
        return sg_tool_usage(argv[0], "\"%s\" is left over", argv[optind]);
    if (!sg_launch_check(&arguments.launch))
        return SG_EXIT_USAGE;
    return selftest_run(&arguments);
}
