/* segalloc run: sets the environment and becomes the program, so that signals and the exit status are its own. */
#include "tool.h"

#include "effective_conf.h"
#include "launch/launch.h"

#include <stdio.h>

static const struct option long_options[] = {
    {"sim", required_argument, NULL, 's'},
    {"torch", no_argument, NULL, 't'},
    {"no-preload", no_argument, NULL, 'n'},
    {"conf", required_argument, NULL, 'c'},
    {"sites", no_argument, NULL, 'S'},
    {"output", required_argument, NULL, 'o'},
    {"force", no_argument, NULL, 'f'},
    {"summary", no_argument, NULL, 'm'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static int help(void)
{
    puts("usage: segalloc run [--sim SPEC] [--torch] [--sites] [--no-preload]\n"
         "                    [--conf K:V,…] [-o TRACE [-f]] [--summary | --quiet]\n"
         "                    [--] CMD [ARGUMENT]…\n"
         "Runs CMD with its CUDA memory served by segalloc. No file is written unless\n"
         "asked for; running out of memory and wrong options are said on standard error.\n"
         "Where that is a terminal, each process that has used device memory ends with a\n"
         "line: what it held at its peak, and what to run next.\n\n"
         "      --sim SPEC     on a simulated GPU: SIZE[,count=N][,driver=12.4][,no-vmm]…,\n"
         "                     such as 24GiB,count=2; device=h100 is that card\n"
         "      --torch        CMD runs PyTorch: PyTorch's memory functions (statistics,\n"
         "                     empty_cache, set_per_process_memory_fraction …) report and\n"
         "                     control segalloc; `man segalloc` says more\n"
         "      --sites        note which line of Python, or which code, asks for memory:\n"
         "                     `segalloc report` of the trace, and what running out\n"
         "                     prints, say where\n"
         "      --no-preload   without segalloc, for comparison; other options may stay\n"
         "  -c, --conf K:V,…   options, on top of SEGALLOC_CONF; `segalloc conf\n"
         "                     --help-options` lists them. May be given several times: of\n"
         "                     several values for a key the last counts\n"
         "  -o, --output TRACE write every event of memory to TRACE; the first process\n"
         "                     that allocates takes that name, each further TRACE.PID\n"
         "  -f, --force        replace a trace of that name\n"
         "      --summary      that line also where standard error is no terminal\n"
         "  -q, --quiet        without that line\n"
         "  -h, --help         print this\n\n"
         "Exit status: CMD's; 125 when segalloc itself fails, 126 when CMD can't be run,\n"
         "127 when there is no CMD.");
    return SG_EXIT_OK;
}

int sg_verb_run(int argc, char **argv)
{
    struct sg_launch launch = {.verb = argv[0], .preload = true, .summary = SG_SUMMARY_ON_TERMINAL};
    for (int option; (option = getopt_long(argc, argv, "+:c:fo:qh", long_options, NULL)) != -1;) {
        switch (option) {
        case 's':
            launch.sim = optarg;
            break;
        case 't':
            launch.torch = true;
            break;
        case 'n':
            launch.preload = false;
            break;
        case 'c':
            launch.conf = sg_tool_conf_join(launch.conf, optarg);
            break;
        case 'S':
            launch.conf = sg_tool_conf_join(launch.conf, "sites:True");
            break;
        case 'o':
            launch.trace = optarg;
            break;
        case 'f':
            launch.force = true;
            break;
        case 'm':
            launch.summary = SG_SUMMARY_ALWAYS;
            break;
        case 'q':
            launch.summary = SG_SUMMARY_NEVER;
            break;
        case 'h':
            return help();
        default:
            sg_tool_bad_option(argv, option, long_options);
            return SG_EXIT_OURS;
        }
    }
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
