/* segalloc run: sets the environment and becomes the program, so that signals and the exit status are its own. With
   `check:fail` it waits for it, because its status may be another. */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/size.h"
#include "config.h"
#include "effective_conf.h"
#include "launch/count_findings.h"
#include "launch/follow.h"
#include "launch/launch.h"
#include "launch/machine.h"

#define CLI_VERB "run"
#define CLI_ROWS "verbs/run.def"
#include "cli/rows.h"

/* Parts of `check` for the command, of enum sg_check_part: by --check, --conf or the environment. */
static unsigned parts_of_check(const struct sg_launch *launch)
{
    struct sg_conf conf;
    sg_tool_conf_quietly(&conf);
    return launch->preload ? conf.check : 0;
}

/* True if the simulator has devices by its settings. It is not asked then, since a rehearsal would note the question. */
static bool simulator_has_devices(void)
{
    struct sim_config config;
    const char *settings = getenv("SEGALLOC_SIM");
    return settings && !getenv("CUDA_VISIBLE_DEVICES") && !sim_config_parse(settings, &config) && config.devices;
}

/* A run that checks itself without a device would end like one in which nothing is wrong. So a line says before it that there is
   none. A program may still find a driver by a path of its own. */
static void say_no_device(const struct sg_launch *launch)
{
    const char *hidden = getenv("CUDA_VISIBLE_DEVICES");
    struct sg_probe probe;
    if (simulator_has_devices() || !sg_probe_driver(getenv("LD_LIBRARY_PATH"), &probe) ||
        (probe.driver && !probe.result && probe.devices))
        return;
    if (!probe.driver)
        sg_tool_message(launch->verb,
            "no CUDA driver (libcuda.so.1) is found here, and without one nothing is checked; "
            "--sim 24GiB gives a simulated one");
    else
        sg_tool_message(launch->verb,
            "the driver has no device (cuInit answers %d%s%.60s%s), and without one nothing is checked; "
            "--sim 24GiB gives a simulated one",
            probe.result, hidden ? ", CUDA_VISIBLE_DEVICES is \"" : "", hidden ? hidden : "", hidden ? "\"" : "");
}

/* "status 4 for 3 findings of check in 2 processes; CMD was ended by signal 11 (Segmentation fault)". Nothing where CMD ended so
   by itself. */
static void say_own_status(const struct sg_findings_counted *counted, int status)
{
    char ended[96];
    if (WIFSIGNALED(status))
        snprintf(ended, sizeof ended, "was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(ended, sizeof ended, "ended with %d", WEXITSTATUS(status));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != SG_EXIT_FINDINGS)
        sg_tool_message("run", "status %d for %" PRIu64 " finding%s of check in %" PRIu64 " process%s; CMD %s",
            SG_EXIT_FINDINGS, counted->findings, sg_plural(counted->findings), counted->processes,
            counted->processes == 1 ? "" : "es", ended);
}

/* A test that fails by findings would pass for good where the library serves nothing. */
static void say_nothing_checked(int status)
{
    if (!WIFEXITED(status) ||
        (WEXITSTATUS(status) != SG_EXIT_NOT_FOUND && WEXITSTATUS(status) != SG_EXIT_NOT_EXECUTABLE))
        sg_tool_message("run", "nothing was checked: no process of CMD allocated memory that segalloc serves; "
                               "segalloc doctor -- CMD says why");
}

/* Runs the program, and ends as it does unless one of its processes had a finding. */
static int run_counting(const struct sg_launch *launch, char **argv)
{
    struct sg_findings_counted counted;
    if (!sg_count_findings_begin(launch->verb))
        return SG_EXIT_OURS;
    int status = sg_follow_run(launch, argv);
    sg_count_findings_end(&counted);
    if (status == -1)
        return SG_EXIT_OURS;
    if (!counted.checked)
        say_nothing_checked(status);
    if (!counted.findings)
        sg_follow_end(status);
    say_own_status(&counted, status);
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
    unsigned parts = parts_of_check(&launch);
    if (parts)
        say_no_device(&launch);
    if (parts & SG_CHECK_FAIL)
        return run_counting(&launch, argv + optind);
    return sg_launch_exec(&launch, argv + optind);
}
