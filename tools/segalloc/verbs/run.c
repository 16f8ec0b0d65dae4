/* segalloc run: sets the environment and becomes the program, so that signals and the exit status are its own. */
#include "tool.h"

#include <stdio.h>

#include "effective_conf.h"
#include "launch/launch.h"

#define CLI_VERB "run"
#define CLI_ROWS "verbs/run.def"
#include "cli/rows.h"

int sg_verb_run(int argc, char **argv)
{
    struct sg_cli cli;
    char check[128]; /* a text alone is not copied, so it has to stay until the launch */
    struct sg_launch launch = {.verb = argv[0], .preload = true, .summary = SG_SUMMARY_ON_TERMINAL};
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    for (int option; (option = sg_cli_next(&cli)) >= 0;) {
        switch ((enum option_of_verb)option) {
        case OPTION_sim:
            launch.sim = optarg;
            break;
        case OPTION_torch:
            launch.torch = true;
            break;
        case OPTION_check:
            snprintf(check, sizeof check, "check:%s", optarg ? optarg : "on");
            launch.conf = sg_tool_conf_join(launch.conf, check);
            break;
        case OPTION_no_preload:
            launch.preload = false;
            break;
        case OPTION_conf:
            launch.conf = sg_tool_conf_join(launch.conf, optarg);
            break;
        case OPTION_sites:
            launch.conf = sg_tool_conf_join(launch.conf, "sites:True");
            break;
        case OPTION_output:
            launch.trace = optarg;
            break;
        case OPTION_force:
            launch.force = true;
            break;
        case OPTION_summary:
            launch.summary = SG_SUMMARY_ALWAYS;
            break;
        case OPTION_quiet:
            launch.summary = SG_SUMMARY_NEVER;
            break;
        }
    }
    if (cli.status)
        return SG_EXIT_OURS;
    if (optind == argc) {
        sg_tool_usage(argv[0], "which program?");
        return SG_EXIT_OURS;
    }
    if (!launch.preload && launch.trace) {
        sg_tool_message(argv[0], "--no-preload leaves out the library, so %s is not written", launch.trace);
        launch.trace = NULL;
    }
    launch.command = argv + optind;
    if (!sg_launch_prepare(&launch))
        return SG_EXIT_OURS;
    return sg_launch_exec(&launch, argv + optind);
}
