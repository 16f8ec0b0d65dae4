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
#include "tune/search.h"
#include "tune_page.h"

#define CLI_VERB "tune"
#define CLI_ROWS "verbs/tune.def"
#include "cli/rows.h"

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

static double tune_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void tune_interrupt(int signal)
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

static int read_option(struct tune *tune, enum option_of_verb option)
{
    switch (option) {
    case OPTION_for:
        tune->policy = optarg;
        break;
    case OPTION_current:
        tune->current = optarg;
        break;
    case OPTION_param:
        if (tune->parameters == PARAMETERS_GIVEN)
            return sg_tool_usage(tune->verb, "--param may be given %d times at most", PARAMETERS_GIVEN);
        tune->parameter[tune->parameters++] = optarg;
        break;
    case OPTION_limit:
        if (!sg_tool_card(optarg, &tune->search.limit))
            return sg_tool_usage(tune->verb,
                "--limit takes a size with its unit, of 64 TiB or less, such as 24GiB, not \"%s\"", optarg);
        break;
    case OPTION_budget:
        if (!read_budget(&tune->search, optarg))
            return sg_tool_usage(tune->verb,
                                 "--budget takes a number of settings such as 40, or a time such as 30s, not \"%s\"",
                                 optarg);
        break;
    case OPTION_threads:
        if (!read_threads(&tune->search, optarg))
            return sg_tool_usage(tune->verb, "--threads takes a number from 1 to %d, not \"%s\"", THREADS_MAX, optarg);
        break;
    case OPTION_memory:
        if (!sg_tool_size(optarg, &tune->memory))
            return sg_tool_usage(tune->verb, "--memory takes a size with its unit, such as 8GiB, not \"%s\"", optarg);
        break;
    case OPTION_json:
        tune->json = true;
        break;
    case OPTION_html:
        tune->html = optarg;
        break;
    case OPTION_force:
        tune->force = true;
        break;
    }
    return 0;
}

static int tune_read_options(struct tune *tune, struct sg_cli *cli)
{
    for (int option; (option = sg_cli_next(cli)) >= 0;) {
        int status = read_option(tune, (enum option_of_verb)option);
        if (status)
            return status;
    }
    if (cli->status)
        return cli->status;
    if (optind == cli->argc)
        return sg_tool_usage(cli->argv[0], "which trace?");
    tune->path = cli->argv + optind;
    tune->search.traces = (size_t)(cli->argc - optind);
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

static int tune_read_traces(struct tune *tune)
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

/* The environment's setting, or else a trace's. Mistakes in it are no reason to stop. */
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

/* Prints the first rank's message; the others end with its status. */
static int tune_complain(const struct tune *tune, const char *error)
{
    return tune->ranks.rank ? SG_EXIT_ERROR : sg_tool_error(tune->verb, "%s", error);
}

static int tune_write_page(const struct tune *tune)
{
    int fd = sg_tool_create(tune->verb, tune->html, tune->html, tune->force);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd < 0)
        return SG_EXIT_ERROR;
    if (!out || sg_tune_page_write(out, &tune->search) != 0)
        return sg_tool_error(tune->verb, "out of memory");
    return fclose(out) == 0 ? 0 : sg_tool_error(tune->verb, "%s: %s", tune->html, strerror(errno));
}

static int tune_run(struct tune *tune)
{
    char error[SG_TUNE_ERROR];
    double began = tune_now();
    int status = tune_read_traces(tune);
    if (status)
        return status;
    if (!tune->current)
        find_current(tune);
    sg_tune_space_decide(&tune->space);
    status = sg_tune_search(&tune->search, error);
    if (status == -EINTR)
        return tune_complain(tune, "stopped before the defaults were played: nothing is known yet");
    if (status)
        return tune_complain(tune, error);
    if (sg_meta_ran_out())
        return sg_tool_error(tune->verb, "no host memory left: fewer --threads take less");
    if (tune->ranks.rank)
        return SG_EXIT_OK;
    if (!tune->json)
        sg_tune_print_text(&tune->search, tune_now() - began);
    if (tune->json)
        sg_json_print(sg_tune_json(&tune->search, tune_now() - began));
    return tune->html ? tune_write_page(tune) : SG_EXIT_OK;
}

int sg_verb_tune(int argc, char **argv)
{
    struct sg_cli cli;
    unsigned cores = sg_tune_ranks_cores();
    struct tune tune = {
        .verb = argv[0],
        .policy = "segalloc",
        .memory = MEMORY,
        .search = {.threads = cores < THREADS_MAX ? cores : THREADS_MAX,
            .candidates_max = BUDGET,
            .seconds_max = INFINITY},
    };
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    int status = tune_read_options(&tune, &cli);
    if (status)
        return status;
    tune.search.space = &tune.space;
    tune.search.stop = &stop;
    tune.search.ranks = &tune.ranks;
    const struct sigaction action = {.sa_handler = tune_interrupt,
        .sa_flags = (int)SA_RESETHAND | SA_RESTART}; /* a second one kills */
    sigaction(SIGINT, &action, NULL);
    sg_tool_small_pages();
    status = read_space(&tune);
    char error[SG_TUNE_RANKS_ERROR];
    if (status == 0 && sg_tune_ranks_open(&tune.ranks, error) != 0)
        status = sg_tool_error(tune.verb, "%s", error);
    tune.search.progress = isatty(STDERR_FILENO) && tune.ranks.rank == 0;
    if (status == 0)
        status = tune_run(&tune);
    sg_tune_ranks_close(&tune.ranks);
    sg_tune_search_free(&tune.search);
    for (size_t i = 0; tune.trace && i < tune.search.traces; i++)
        sg_tune_trace_close(&tune.trace[i]);
    free(tune.trace);
    sg_tune_space_free(&tune.space);
    return status;
}
