/* segalloc selftest: does this machine do what the allocator takes for granted? */
#include "tool.h"

#include "json.h"
#include "selftest/selftest.h"

#include <stdio.h>

#define CLI_VERB "selftest"
#define CLI_ROWS "verbs/selftest.def"
#include "cli/rows.h"

/* Judges what was asked, and writes files: facts, and the settings with `apply`. */
static int selftest_conclude(struct sg_selftest *selftest, const char *output, bool apply)
{
    static const int statuses[] = {[SG_SELFTEST_AS_ASSUMED] = SG_EXIT_OK, [SG_SELFTEST_LEFT_OUT] = SG_EXIT_OK,
        [SG_SELFTEST_DIFFERS] = SG_EXIT_DIFFERS, [SG_SELFTEST_UNUSABLE] = SG_EXIT_ERROR};
    sg_selftest_find_facts(selftest);
    sg_selftest_judge(selftest);
    bool kept = sg_selftest_keep(selftest, output) || !output; /* a home that can't be written to is no fault of the machine */
    bool applied = !apply || sg_selftest_apply(selftest);
    return kept && applied ? statuses[selftest->level] : SG_EXIT_ERROR;
}

static int selftest_run(struct sg_selftest *selftest, const char *output, bool apply, bool json)
{
    if (!sg_launch_prepare(&selftest->launch))
        return SG_EXIT_ERROR;
    selftest->lines = sg_json_array();
    selftest->facts = sg_json_object(NULL);
    int status = sg_selftest_ask(selftest) ? selftest_conclude(selftest, output, apply) : SG_EXIT_ERROR;
    if (json)
        sg_selftest_print_json(selftest);
    else if (!*selftest->problem)
        sg_selftest_print_text(selftest);
    if (*selftest->problem)
        sg_tool_message(selftest->launch.verb, "%s", selftest->problem);
    json_decref(selftest->lines);
    json_decref(selftest->facts);
    return status;
}

int sg_verb_selftest(int argc, char **argv)
{
    static struct sg_selftest selftest;
    struct sg_cli cli;
    const char *output = NULL;
    bool json = false, apply = false;
    int played = sg_selftest_rows(argc, argv);
    if (played >= 0)
        return played;
    selftest.launch = (struct sg_launch){.verb = argv[0]};
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    for (int option; (option = sg_cli_next(&cli)) >= 0;) {
        switch ((enum option_of_verb)option) {
        case OPTION_sim:
            selftest.launch.sim = optarg;
            break;
        case OPTION_apply:
            apply = true;
            break;
        case OPTION_output:
            output = optarg;
            break;
        case OPTION_json:
            json = true;
            break;
        }
    }
    if (cli.status)
        return cli.status;
    if (optind < argc)
        return sg_tool_usage(argv[0], "\"%s\" is left over", argv[optind]);
    if (!sg_launch_check(&selftest.launch))
        return SG_EXIT_USAGE;
    return selftest_run(&selftest, output, apply, json);
}
