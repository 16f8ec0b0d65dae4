/* segalloc metrics: what running processes hold, for Prometheus. */
#include "monitor/metrics.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"
#include "writer/replaced_file.h"

#define CLI_VERB "metrics"
#define CLI_ROWS "verbs/metrics.def"
#include "cli/rows.h"

/* Writes a file that stands there whole or not at all. */
static int metrics_write_file(const char *verb, const char *path, const struct sg_live *live)
{
    struct sg_replaced_file file;
    int error = sg_replaced_file_open(&file, path, 0666);
    if (error)
        return sg_tool_error(verb, "%s: %s", path, strerror(-error));
    int copy = dup(file.fd);
    FILE *out = copy >= 0 ? fdopen(copy, "w") : NULL;
    if (out)
        sg_metrics_write(out, live);
    else
        error = -errno;
    if (out && (ferror(out) | fclose(out)) != 0)
        error = errno ? -errno : -EIO;
    error = sg_replaced_file_close(&file, error);
    return error ? sg_tool_error(verb, "%s: %s", path, strerror(-error)) : SG_EXIT_OK;
}

int sg_verb_metrics(int argc, char **argv)
{
    struct sg_cli cli;
    const char *output = NULL, *listen = NULL;
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    for (int option; (option = sg_cli_next(&cli)) >= 0;) {
        switch ((enum option_of_verb)option) {
        case OPTION_output:
            output = optarg;
            break;
        case OPTION_listen:
            listen = optarg;
            break;
        }
    }
    if (cli.status)
        return cli.status;
    if (output && listen)
        return sg_tool_usage(argv[0], "either -o or --listen");
    size_t count = (size_t)(argc - optind);
    uint64_t *pids = calloc(count + 1, sizeof *pids);
    if (!pids)
        return sg_tool_error(argv[0], "out of memory");
    int status = SG_EXIT_OK;
    for (size_t i = 0; i < count && !status; i++)
        if (!sg_live_pid(argv[(size_t)optind + i], &pids[i]))
            status = sg_tool_usage(argv[0], "\"%s\" is no process id", argv[(size_t)optind + i]);
    struct sg_live live = {0};
    if (!status && listen)
        status = sg_metrics_serve(argv[0], listen, pids, count);
    else if (!status && sg_live_read(pids, count, &live) < 0)
        status = sg_tool_error(argv[0], "out of memory");
    else if (!status && output && strcmp(output, "-") != 0)
        status = metrics_write_file(argv[0], output, &live);
    else if (!status)
        sg_metrics_write(stdout, &live);
    if (!status && !listen && live.count < count)
        status = sg_tool_error(argv[0], "%zu of the processes %s no live statistics: start them with live:True",
                               count - live.count, count - live.count == 1 ? "keeps" : "keep");
    sg_live_free(&live);
    free(pids);
    return status;
}
