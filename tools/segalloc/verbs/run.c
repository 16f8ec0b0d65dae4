/* segalloc run: sets the environment and becomes the program, so that signals and the exit status are its own. With
   `check:fail` it waits for it, because its status may be another. */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/size.h"
#include "effective_conf.h"
#include "launch/count_findings.h"
#include "launch/follow.h"
#include "launch/launch.h"

#define CLI_VERB "run"
#define CLI_ROWS "verbs/run.def"
#include "cli/rows.h"

/* True if a finding in any process is to be the status: by --check=fail, --conf or the environment. */
static bool fails_by_findings(const struct sg_launch *launch)
{
    struct sg_conf conf;
    sg_tool_conf_quietly(&conf);
    return launch->preload && conf.check & SG_CHECK_FAIL;
}

/* "status 4 for 3 findings of check in 2 processes; CMD was ended by signal 11 (Segmentation fault)". Nothing where CMD ended so
   by itself. */
static void say_own_status(uint64_t findings, uint64_t processes, int status)
{
    char ended[96];
    if (WIFSIGNALED(status))
        snprintf(ended, sizeof ended, "was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(ended, sizeof ended, "ended with %d", WEXITSTATUS(status));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != SG_EXIT_FINDINGS)
        sg_tool_message("run", "status %d for %" PRIu64 " finding%s of check in %" PRIu64 " process%s; CMD %s",
            SG_EXIT_FINDINGS, findings, sg_plural(findings), processes, processes == 1 ? "" : "es", ended);
}

/* Runs the program, and ends as it does unless one of its processes had a finding. */
static int run_counting(const struct sg_launch *launch, char **argv)
{
    uint64_t findings, processes;
    if (!sg_count_findings_begin(launch->verb))
        return SG_EXIT_OURS;
    int status = sg_follow_run(launch, argv);
    sg_count_findings_end(&findings, &processes);
    if (status == -1)
        return SG_EXIT_OURS;
    if (!findings)
        sg_follow_end(status);
    say_own_status(findings, processes, status);
    return SG_EXIT_FINDINGS;
}

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
        case OPTION_memory_saver:
            launch.memory_saver = true;
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
    if (fails_by_findings(&launch))
        return run_counting(&launch, argv + optind);
    return sg_launch_exec(&launch, argv + optind);
}
