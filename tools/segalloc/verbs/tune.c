/* segalloc tune: which settings suit the programs that these traces are of. */
#include "tool.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "effective_conf.h"
#include "meta.h"
#include "size.h"
#include "tune_page.h"

static const struct option long_options[] = {
    {"for", required_argument, NULL, 'f'},
    {"current", required_argument, NULL, 'c'},
    {"param", required_argument, NULL, 'p'},
    {"limit", required_argument, NULL, 'l'},
    {"budget", required_argument, NULL, 'b'},
    {"threads", required_argument, NULL, 'J'},
    {"memory", required_argument, NULL, 'm'},
    {"json", no_argument, NULL, 'j'},
    {"html", required_argument, NULL, 'H'},
    {"force", no_argument, NULL, 'w'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

enum { BUDGET = 64, THREADS_MAX = 256, PARAMETERS_GIVEN = 16 };
#define MEMORY (2 * SG_GIB)

struct tune {
    const char *verb, *policy, *current, *html;
    const char *parameter[PARAMETERS_GIVEN];
    unsigned parameters;
    char **path;
    bool json, force;
    uint64_t memory;
    struct sg_tune_space space;
    struct sg_tune_trace *trace;
    struct sg_tune_search search;
    struct sg_tune_ranks ranks;
};

/* The setting in use, where nobody named it to us. */
struct current {
    char text[4096];
    bool as_written; /* by a person, for PyTorch */
    bool recorded;   /* it is that of the traces */
};

static atomic_bool stop;

static int help(void)
{
    puts("usage: segalloc tune TRACE… [--for pytorch] [--current K:V,…] [--limit SIZE]\n"
         "                     [--param NAME=VALUES]…\n"
         "Replays traces (ours, memory snapshots of PyTorch, or RMM's replay CSV, also as\n"
         ".zst) under many settings, prints the Pareto front of reserved memory against\n"
         "driver calls, and recommends a setting, with the reason and the line to paste.\n"
         "None is recommended under which an allocation fails, or that reserves more than\n"
         "the defaults on any of the traces; within 0.5 % the defaults stay. Figures are\n"
         "sums over the traces.\n"
         "Ctrl-C ends the search with what is known.\n\n"
         "  -f, --for segalloc|pytorch\n"
         "                         segalloc (default), or pytorch: PyTorch's own allocator\n"
         "                         and settings\n"
         "  -c, --current K:V,…    the setting in use, to compare with (default: the\n"
         "                         environment's, else the trace's)\n"
         "  -p, --param NAME=LOW..HIGH, --param NAME=A,B,…\n"
         "                         search only the parameters named so, over these values\n"
         "  -l, --limit SIZE       size of each card, such as 24GiB (default: that of the\n"
         "                         recorded device, or one without end)\n"
         "  -b, --budget N|TIME    how many settings to try at most (default: 64), or how\n"
         "                         long: 30s\n"
         "  -J, --threads N        replays at a time (default: one a core)\n"
         "      --memory SIZE      memory for the decoded traces, 16 bytes an event\n"
         "                         (default: 2 GiB)\n"
         "      --json             print one object on one line\n"
         "      --html PAGE        also write a plot of the front and all figures to PAGE,\n"
         "                         one file for any browser\n"
         "      --force            replace PAGE if it is there\n"
         "  -h, --help             print this\n\n"
         "Exit status: 0 when there is an answer, 1 when a trace could not be played,\n"
         "2 for bad usage.");
    return SG_EXIT_OK;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void interrupt(int signal)
{
    (void)signal;
    atomic_store(&stop, true);
}

/* "40" settings, or "30s", "5min", "1h". */
static bool read_budget(struct sg_tune_search *search, const char *text)
{
    char *end;
    double number = strtod(text, &end);
    double unit = strcmp(end, "s") == 0                              ? 1
                  : strcmp(end, "min") == 0 || strcmp(end, "m") == 0 ? 60
                  : strcmp(end, "h") == 0                            ? 3600
                                                                     : 0;
    if (end == text || !isfinite(number) || number <= 0)
        return false;
    if (unit > 0) {
        search->seconds_max = number * unit;
        search->candidates_max = SIZE_MAX;
        return true;
    }
    if (*end || number != floor(number) || number > 1e6)
        return false;
    search->candidates_max = (size_t)number;
    return true;
}

static bool read_threads(struct sg_tune_search *search, const char *text)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (end == text || *end || *text == '-' || number < 1 || number > THREADS_MAX)
        return false;
    search->threads = (unsigned)number;
    return true;
}

static int read_option(struct tune *tune, int option, char **argv)
{
    switch (option) {
    case 'f':
        tune->policy = optarg;
        return 0;
    case 'c':
        tune->current = optarg;
        return 0;
    case 'p':
        if (tune->parameters == PARAMETERS_GIVEN)
            return sg_tool_usage(tune->verb, "--param may be given %d times at most", PARAMETERS_GIVEN);
        tune->parameter[tune->parameters++] = optarg;
        return 0;
    case 'l':
        if (!sg_tool_card(optarg, &tune->search.limit))
            return sg_tool_usage(tune->verb,
                "--limit takes a size with its unit, of 64 TiB or less, such as 24GiB, not \"%s\"", optarg);
        return 0;
    case 'b':
        if (!read_budget(&tune->search, optarg))
            return sg_tool_usage(tune->verb,
                                 "--budget takes a number of settings such as 40, or a time such as 30s, not \"%s\"",
                                 optarg);
        return 0;
    case 'J':
        if (!read_threads(&tune->search, optarg))
            return sg_tool_usage(tune->verb, "--threads takes a number from 1 to %d, not \"%s\"", THREADS_MAX, optarg);
        return 0;
    case 'm':
        if (!sg_tool_size(optarg, &tune->memory))
            return sg_tool_usage(tune->verb, "--memory takes a size with its unit, such as 8GiB, not \"%s\"", optarg);
        return 0;
    case 'j':
        tune->json = true;
        return 0;
    case 'H':
        tune->html = optarg;
        return 0;
    case 'w':
        tune->force = true;
        return 0;
    default:
        return sg_tool_bad_option(argv, option, long_options);
    }
}

static int read_options(struct tune *tune, int argc, char **argv)
{
    for (int option; (option = getopt_long(argc, argv, ":hf:c:p:l:b:J:", long_options, NULL)) != -1;) {
        int status = read_option(tune, option, argv);
        if (status)
            return status;
    }
    if (optind == argc)
        return sg_tool_usage(argv[0], "which trace?");
    tune->path = argv + optind;
    tune->search.traces = (size_t)(argc - optind);
    if (strcmp(tune->policy, "pytorch") != 0 && strcmp(tune->policy, "segalloc") != 0)
        return sg_tool_usage(tune->verb, "--for is segalloc or pytorch, not \"%s\"", tune->policy);
    if (tune->force && !tune->html)
        return sg_tool_usage(tune->verb, "--force is for a page: --html PAGE");
    for (size_t i = 0; tune->html && i < tune->search.traces; i++)
        if (sg_tool_would_lose(tune->verb, tune->path[i], tune->html))
            return SG_EXIT_ERROR;
    return 0;
}

static int read_space(struct tune *tune)
{
    char error[SG_TUNE_SPACE_ERROR];
    sg_tune_space_init(&tune->space, strcmp(tune->policy, "pytorch") == 0 ? SG_POLICY_PYTORCH : SG_POLICY_SEGALLOC);
    for (unsigned i = 0; i < tune->parameters; i++) {
        if (sg_tune_space_narrow(&tune->space, tune->parameter[i], error) != 0)
            return sg_tool_usage(tune->verb, "%s", error);
    }
    if (tune->current && sg_tune_space_current(&tune->space, tune->current, false, error) != 0)
        return sg_tool_usage(tune->verb, "--current: %s", error);
    return 0;
}

static int read_traces(struct tune *tune)
{
    char error[SG_TUNE_ERROR];
    uint64_t left = tune->memory;
    tune->trace = calloc(tune->search.traces, sizeof *tune->trace);
    if (!tune->trace)
        return sg_tool_error(tune->verb, "no host memory left");
    tune->search.trace = tune->trace;
    for (size_t i = 0; i < tune->search.traces; i++) {
        struct sg_tune_trace *trace = &tune->trace[i];
        trace->path = tune->path[i];
        int status = tune->ranks.rank ? 0 : sg_tune_trace_open(tune->path[i], left, &stop, trace, error);
        sg_tune_ranks_share(&tune->ranks, 0, &status, sizeof status);
        if (status)
            return tune->ranks.rank ? SG_EXIT_ERROR : sg_tool_error(tune->verb, "%s: %s", tune->path[i], error);
        left -= trace->bytes;
        if (!tune->ranks.rank)
            sg_tune_trace_divide(trace);
        if (tune->ranks.count > 1 && sg_tune_trace_share(trace, &tune->ranks) != 0)
            return sg_tool_error(tune->verb, "%s: a rank has no host memory for it", tune->path[i]);
    }
    return 0;
}

/* The environment's, or else a trace's. What it has wrong is no reason to stop. */
static const char *look_for_current(const struct tune *tune, struct current *ret)
{
    static const char *const names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};
    struct sg_conf conf;
    const char *from = "SEGALLOC_CONF";
    bool pytorch = tune->space.policy == SG_POLICY_PYTORCH;
    *ret = (struct current){.as_written = pytorch};
    if (!pytorch) {
        sg_tool_conf_quietly(&conf);
        sg_conf_print(&conf, ret->text, sizeof ret->text);
    }
    for (size_t i = 0; pytorch && i < 2 && !*ret->text; i++) {
        from = names[i];
        snprintf(ret->text, sizeof ret->text, "%s", getenv(from) ? getenv(from) : "");
    }
    if (*ret->text)
        return from;
    ret->recorded = true;
    for (size_t i = 1; i < tune->search.traces; i++)
        ret->recorded &= strcmp(tune->trace[i].conf, tune->trace[0].conf) == 0;
    for (size_t i = 0; i < tune->search.traces && !*ret->text; i++) {
        from = tune->path[i];
        snprintf(ret->text, sizeof ret->text, "%s", tune->trace[i].conf);
        ret->as_written = false;
    }
    return from;
}

/* The environment that counts is that of the first rank. */
static void find_current(struct tune *tune)
{
    char error[SG_TUNE_SPACE_ERROR];
    struct current current;
    const char *from = look_for_current(tune, &current);
    sg_tune_ranks_share(&tune->ranks, 0, &current, sizeof current);
    tune->search.is_recorded = current.recorded;
    if (*current.text && sg_tune_space_current(&tune->space, current.text, !current.as_written, error) != 0 &&
        !tune->ranks.rank)
        sg_tool_message(tune->verb, "%s is not compared with: %s", from, error);
}

/* What the first rank has to say; the others end with its status. */
static int complain(const struct tune *tune, const char *error)
{
    return tune->ranks.rank ? SG_EXIT_ERROR : sg_tool_error(tune->verb, "%s", error);
}

static int write_page(const struct tune *tune)
{
    int fd = sg_tool_create(tune->verb, tune->html, tune->html, tune->force);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd < 0)
        return SG_EXIT_ERROR;
    if (!out || sg_tune_page_write(out, &tune->search) != 0)
        return sg_tool_error(tune->verb, "out of memory");
    return fclose(out) == 0 ? 0 : sg_tool_error(tune->verb, "%s: %s", tune->html, strerror(errno));
}

static int run(struct tune *tune)
{
    char error[SG_TUNE_ERROR];
    double began = now();
    int status = read_traces(tune);
    if (status)
        return status;
    if (!tune->current)
        find_current(tune);
    sg_tune_space_decide(&tune->space);
    status = sg_tune_search(&tune->search, error);
    if (status == -EINTR)
        return complain(tune, "stopped before the defaults were played: nothing is known yet");
    if (status)
        return complain(tune, error);
    if (sg_meta_ran_out())
        return sg_tool_error(tune->verb, "no host memory left: fewer --threads take less");
    if (tune->ranks.rank)
        return SG_EXIT_OK;
    if (!tune->json)
        sg_tune_print_text(&tune->search, now() - began);
    if (tune->json) {
        sg_tune_write_json(stdout, &tune->search, now() - began);
        putchar('\n');
    }
    return tune->html ? write_page(tune) : SG_EXIT_OK;
}

int sg_verb_tune(int argc, char **argv)
{
    unsigned cores = sg_tune_ranks_cores();
    struct tune tune = {
        .verb = argv[0],
        .policy = "segalloc",
        .memory = MEMORY,
        .search = {.threads = cores < THREADS_MAX ? cores : THREADS_MAX,
            .candidates_max = BUDGET,
            .seconds_max = INFINITY},
    };
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return help();
    int status = read_options(&tune, argc, argv);
    if (status)
        return status;
    tune.search.space = &tune.space;
    tune.search.stop = &stop;
    tune.search.ranks = &tune.ranks;
    const struct sigaction action = {.sa_handler = interrupt,
                                     .sa_flags = (int)SA_RESETHAND | SA_RESTART}; /* a second one kills */
    sigaction(SIGINT, &action, NULL);
    sg_tool_small_pages();
    status = read_space(&tune);
    char error[SG_TUNE_RANKS_ERROR];
    if (status == 0 && sg_tune_ranks_open(&tune.ranks, error) != 0)
        status = sg_tool_error(tune.verb, "%s", error);
    tune.search.progress = isatty(STDERR_FILENO) && tune.ranks.rank == 0;
    if (status == 0)
        status = run(&tune);
    sg_tune_ranks_close(&tune.ranks);
    sg_tune_search_free(&tune.search);
    for (size_t i = 0; tune.trace && i < tune.search.traces; i++)
        sg_tune_trace_close(&tune.trace[i]);
    free(tune.trace);
    sg_tune_space_free(&tune.space);
    return status;
}
