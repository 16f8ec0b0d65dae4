/* segalloc report: what a program's memory did, from its trace or its statistics. */
#include "report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "html/page.h"
#include "monitor/live_page.h"
#include "size.h"
#include "tool.h"

#define CLI_VERB "report"
#define CLI_ROWS "verbs/report.def"
#include "cli/rows.h"

/* Units of the figures that --fail-above can compare. */
enum unit { PERCENT, BYTES, COUNT };

static double findings_fragmentation(const struct sg_findings *findings)
{
    return findings->utilization < 0 ? -1 : findings->utilization > 1 ? 0 : 100 * (1 - findings->utilization);
}

static double findings_unserved(const struct sg_findings *findings)
{
    return findings->imported || findings->served_share < 0 ? -1 : 100 * (1 - findings->served_share);
}

static double findings_reserved(const struct sg_findings *findings)
{
    return findings->knows_reserved ? (double)findings->peak_reserved : -1;
}

static double findings_stranded(const struct sg_findings *findings)
{
    return findings->knows_reserved ? (double)findings->peak_stranded : -1;
}

static double findings_requested(const struct sg_findings *findings)
{
    return (double)findings->peak_requested;
}

static double findings_ooms(const struct sg_findings *findings)
{
    return (double)findings->ooms;
}

static double findings_of_check(const struct sg_findings *findings)
{
    bool ran;
    uint64_t found = sg_findings_checked_all(findings, &ran);
    return ran ? (double)found : -1;
}

static const struct measure {
    const char *name;
    enum unit unit;
    double (*value)(const struct sg_findings *findings); /* negative: unknown */
} measures[] = {
    {"frag", PERCENT, findings_fragmentation},
    {"unserved", PERCENT, findings_unserved},
    {"reserved", BYTES, findings_reserved},
    {"stranded", BYTES, findings_stranded},
    {"requested", BYTES, findings_requested},
    {"ooms", COUNT, findings_ooms},
    {"findings", COUNT, findings_of_check},
};

enum { BOUNDS_MAX = 16 };

struct bound {
    const struct measure *measure;
    double limit;
    const char *text;
};

struct arguments {
    const char *verb, *output, *html;
    bool json, force, strict, redact, no_advice, all;
    struct bound bound[BOUNDS_MAX];
    int bounds;
};

/* "KEY=VALUE" into the next bound. 0, or an exit status after a message. */
static int add_bound(struct arguments *arguments, const char *text)
{
    static const char *const examples[] = {"a share such as 20%", "a size with its unit, such as 1GiB", "a number"};
    const char *value = strchr(text, '=');
    const struct measure *measure = NULL;
    for (size_t i = 0; value && i < sizeof(measures) / sizeof(measures[0]); i++)
        if (strlen(measures[i].name) == (size_t)(value - text) &&
            !strncmp(measures[i].name, text, (size_t)(value - text)))
            measure = &measures[i];
    if (!measure)
        return sg_tool_usage(arguments->verb,
            "--fail-above takes frag=, unserved=, reserved=, stranded=, requested=, ooms= or findings=, not \"%s\"",
            text);
    if (arguments->bounds == BOUNDS_MAX)
        return sg_tool_usage(arguments->verb, "--fail-above may be given %d times", BOUNDS_MAX);
    char *end;
    uint64_t bytes;
    double limit = strtod(++value, &end);
    bool good = end != value && limit >= 0;
    if (measure->unit == PERCENT) {
        good = good && (!*end || !strcmp(end, "%")) && limit <= 100;
        if (good && !*end && limit <= 1)
            limit *= 100; /* 0.2 as well as 20% */
    } else if (measure->unit == COUNT) {
        good = good && !*end;
    } else if ((good = sg_tool_size(value, &bytes))) {
        limit = (double)bytes;
    }
    if (!good)
        return sg_tool_usage(arguments->verb, "--fail-above %s takes %s, not \"%s\"", measure->name,
                             examples[measure->unit], value);
    arguments->bound[arguments->bounds++] = (struct bound){measure, limit, value};
    return 0;
}

static int report_read_arguments(struct sg_cli *cli, struct arguments *ret)
{
    for (int option, status; (option = sg_cli_next(cli)) >= 0;) {
        switch ((enum option_of_verb)option) {
        case OPTION_json:
            ret->json = true;
            break;
        case OPTION_format:
            if (strcmp(optarg, "json") != 0 && strcmp(optarg, "text") != 0)
                return sg_tool_usage(ret->verb, "--format is text or json, not \"%s\"", optarg);
            ret->json = !strcmp(optarg, "json");
            break;
        case OPTION_output:
            ret->output = optarg;
            break;
        case OPTION_force:
            ret->force = true;
            break;
        case OPTION_html:
            ret->html = optarg;
            break;
        case OPTION_redact:
            ret->redact = true;
            break;
        case OPTION_no_advice:
            ret->no_advice = true;
            break;
        case OPTION_all:
            ret->all = true;
            break;
        case OPTION_strict:
            ret->strict = true;
            break;
        case OPTION_fail_above:
            status = add_bound(ret, optarg);
            if (status)
                return status;
            break;
        }
    }
    if (cli->status)
        return cli->status;
    if (optind == cli->argc)
        return sg_tool_usage(ret->verb,
            ret->html ? "--html %s names the page to write; which trace or statistics file is it of?"
                      : "which trace or statistics file?",
            ret->html);
    if (ret->html && (ret->json || ret->output))
        return sg_tool_usage(ret->verb, "--html PAGE takes the place of --json and -o");
    if (ret->redact && !ret->html)
        return sg_tool_usage(ret->verb, "--redact is for a page: --html PAGE");
    if (ret->no_advice && !ret->html)
        return sg_tool_usage(ret->verb, "--no-advice is for a page: --html PAGE");
    if (ret->html && cli->argc - optind > SG_PAGE_RUNS)
        return sg_tool_usage(ret->verb, "a page shows %d files at most", SG_PAGE_RUNS);
    return 0;
}

/* Makes stdout the file asked for. */
static int report_open_output(const struct arguments *arguments)
{
    if (!arguments->output || !strcmp(arguments->output, "-"))
        return 0;
    int fd = sg_tool_create(arguments->verb, arguments->output, arguments->output, arguments->force);
    if (fd < 0)
        return SG_EXIT_ERROR;
    if (dup2(fd, STDOUT_FILENO) < 0)
        return sg_tool_error(arguments->verb, "%s: %s", arguments->output, strerror(errno));
    close(fd);
    return 0;
}

static int check_bounds(const struct arguments *arguments, const struct sg_findings *findings)
{
    int status = 0;
    for (int i = 0; i < arguments->bounds; i++) {
        const struct bound *bound = &arguments->bound[i];
        double value = bound->measure->value(findings);
        char text[SG_SIZE_TEXT];
        if (value < 0)
            return sg_tool_error(arguments->verb, "%s: %s is not known from this file", findings->path,
                                 bound->measure->name);
        if (value <= bound->limit)
            continue;
        if (bound->measure->unit == BYTES)
            sg_size_format((uint64_t)value, text);
        else
            snprintf(text, sizeof(text), bound->measure->unit == PERCENT ? "%.2f %%" : "%.0f", value);
        sg_tool_message(arguments->verb, "%s: %s is %s, above %s", findings->path, bound->measure->name, text,
                        bound->text);
        status = SG_EXIT_ABOVE;
    }
    return status;
}

static int report_damage(const struct arguments *arguments, const struct sg_findings *findings)
{
    return sg_tool_error(arguments->verb, "%s: %s; reported is what comes before", findings->path, findings->end_text);
}

static void report_print(const struct arguments *arguments, const struct sg_findings *const *findings, size_t count,
    bool several)
{
    if (!several && count && arguments->json) {
        sg_json_print(sg_report_json(findings[0], false));
    } else if (!several && count) {
        sg_report_text(findings[0], arguments->all);
    } else if (arguments->json) {
        json_t *result = sg_json_object("segalloc.report/1"), *reports = sg_json_array();
        for (size_t i = 0; i < count; i++)
            sg_json_add(reports, sg_report_json(findings[i], true));
        sg_json_set(result, "reports", reports);
        sg_json_print(result);
    } else if (count) {
        sg_report_table(findings, count);
    }
}

static int report_write_page(const struct arguments *arguments, const struct sg_findings *const *findings, size_t pages)
{
    char error[SG_FINDINGS_ERROR];
    bool console = !strcmp(arguments->html, "-");
    int fd = console ? STDOUT_FILENO
                     : sg_tool_create(arguments->verb, arguments->html, arguments->html, arguments->force);
    if (fd < 0)
        return SG_EXIT_ERROR;
    FILE *out = console ? stdout : fdopen(fd, "w");
    if (!out) {
        close(fd);
        return sg_tool_error(arguments->verb, "out of memory");
    }
    char why[SG_TRIALS_WHY] = "Settings were not tried, as asked for by --no-advice.";
    struct sg_trials *tried = arguments->no_advice ? NULL : sg_trials_run(findings, pages, arguments->redact, why);
    const struct sg_page_trials trials = {tried, why};
    int status = sg_page_write(out, findings, pages, &trials, arguments->redact, error);
    sg_trials_free(tried);
    bool lost = ferror(out) != 0;
    int flushed = (console ? fflush(out) : fclose(out)) != 0 || lost;
    if (status)
        return sg_tool_error(arguments->verb, "%s: %s", arguments->html, error);
    return flushed ? sg_tool_error(arguments->verb, "%s: %s", arguments->html, strerror(errno)) : 0;
}

/* An unreadable file outweighs a bound that was passed, and that an incomplete trace. */
static int worse_status(int a, int b)
{
    static const int weight[] = {[SG_EXIT_OK] = 0, [SG_EXIT_ERROR] = 3, [SG_EXIT_USAGE] = 4, [SG_EXIT_ABOVE] = 2,
                                 [SG_EXIT_TRUNCATED] = 1};
    return weight[b] > weight[a] ? b : a;
}

static int by_rank(const void *a, const void *b)
{
    const int64_t one = (*(const struct sg_findings *const *)a)->rank;
    const int64_t other = (*(const struct sg_findings *const *)b)->rank;
    return (one > other) - (one < other);
}

/* The live page of a process, where its number is given in place of a file. A process that was killed leaves its page
   behind, and its number may be another's by now. */
static char *path_of(const char *verb, char *name)
{
    char page[SG_LIVE_PATH];
    uint64_t pid;
    if (!sg_live_pid(name, &pid) || access(name, F_OK) == 0)
        return name;
    enum sg_live_page kind = sg_live_page(pid, page);
    if (kind == SG_LIVE_NONE)
        return name;
    if (kind == SG_LIVE_ENDED)
        sg_tool_message(verb, "process %" PRIu64 " has ended; these are the last statistics that it left", pid);
    char *path = strdup(page); /* for as long as the command line */
    return path ? path : name;
}

/* The error for a process that has no live page, with the way out. */
static int report_unreadable(const struct arguments *arguments, const char *path, const char *error)
{
    uint64_t pid;
    char process[64];
    snprintf(process, sizeof process, "/proc/%.32s", path);
    bool number = *path && strspn(path, "0123456789") == strlen(path);
    if (number && (!sg_live_pid(path, &pid) || access(process, F_OK) != 0))
        return sg_tool_error(arguments->verb, "there is no process %s, and no file of that name", path);
    if (number)
        return sg_tool_error(arguments->verb,
            "process %s keeps no live statistics: start it with live:True, or report on its "
            "trace",
            path);
    return sg_tool_error(arguments->verb, "%s: %s", path, error);
}

static int report_paths(const struct arguments *arguments, char **paths, size_t count)
{
    struct sg_findings *all = calloc(count, sizeof(*all));
    const struct sg_findings **good = calloc(count, sizeof(*good));
    char error[SG_FINDINGS_ERROR];
    size_t goods = 0;
    int status = SG_EXIT_OK;
    if (!all || !good)
        status = sg_tool_error(arguments->verb, "out of memory");
    for (size_t i = 0; all && good && i < count; i++) {
        if (sg_findings_read(paths[i], true, &all[i], error))
            status = worse_status(status, report_unreadable(arguments, paths[i], error));
        else
            good[goods++] = &all[i];
        if (all[i].unplayed)
            sg_tool_message(arguments->verb,
                "%s: out of memory: the smallest card, and what only a replay says, are left out", paths[i]);
    }
    bool ranks = goods > 1;
    for (size_t i = 0; i < goods; i++)
        ranks = ranks && good[i]->rank >= 0;
    if (ranks)
        qsort(good, goods, sizeof(*good), by_rank);
    if (goods && arguments->html) {
        status = worse_status(status, report_write_page(arguments, good, goods));
    } else if (goods) {
        int opened = report_open_output(arguments);
        if (!opened)
            report_print(arguments, good, goods, count > 1);
        status = worse_status(status, opened);
        if (fflush(stdout))
            status =
                worse_status(status, sg_tool_error(arguments->verb, "%s: %s",
                                         arguments->output ? arguments->output : "standard output", strerror(errno)));
    }
    for (size_t i = 0; i < goods; i++) {
        if (arguments->strict && (good[i]->end_text || good[i]->dropped))
            status = worse_status(status, SG_EXIT_TRUNCATED);
        status = worse_status(status,
            good[i]->damaged ? report_damage(arguments, good[i]) : check_bounds(arguments, good[i]));
    }
    for (size_t i = 0; all && i < count; i++)
        sg_findings_free(&all[i]);
    free(all);
    free(good);
    return status;
}

int sg_verb_report(int argc, char **argv)
{
    struct sg_cli cli;
    struct arguments arguments = {.verb = argv[0]};
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    int status = report_read_arguments(&cli, &arguments);
    for (int i = optind; i < argc; i++)
        argv[i] = path_of(argv[0], argv[i]);
    for (int i = optind; i < argc && !status; i++)
        status = sg_tool_would_lose(arguments.verb, argv[i], arguments.html ? arguments.html : arguments.output)
                     ? SG_EXIT_ERROR
                     : 0;
    return status ? status : report_paths(&arguments, argv + optind, (size_t)(argc - optind));
}
