/* segalloc trace: what is in a trace, as CSV, and from CSV. */
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "export/export.h"
#include "progress.h"
#include "reader/rmm_csv.h"
#include "reader/rmm_row.h"
#include "size.h"
#include "analysis/summary.h"
#include "analysis/trace_info.h"
#include "reader/trace_output.h"
#include "reader/trace_reader.h"

#define CLI_VERB "trace"
#define CLI_ROWS "verbs/trace.def"
#include "cli/rows.h"

enum { BATCH = 4096, VIEWED_WELL = 100000, POINTS = 20000 };

struct arguments {
    const char *verb, *input, *output;
    uint64_t from_ns, to_ns;
    uint32_t device;
    const struct sg_export_format *format;
    enum sg_moment moment; /* AUTO: as the format has it */
    uint64_t points;
    struct sg_window window;
    bool one_device, windowed, force, json, strict;
};

/* Says how an incomplete trace ends; the exit status for it. */
static int check_end(const struct arguments *arguments, const struct sg_trace_reader *reader)
{
    const struct sg_trace_info *info = sg_trace_info(reader);
    if (sg_trace_error(reader))
        return sg_tool_error(arguments->verb, "%s: %s", arguments->input, sg_trace_error(reader));
    if (info->end == SG_TRACE_DAMAGED)
        return sg_tool_error(arguments->verb, "%s: %s; read to the last whole block before, %" PRIu64 " record%s in all",
            arguments->input, info->end_text, info->records, sg_plural(info->records));
    if (info->dropped)
        sg_tool_message(arguments->verb, "%s: %" PRIu64 " event%s lost when it was written", arguments->input,
            info->dropped, info->dropped == 1 ? " was" : "s were");
    if (info->end_text)
        sg_tool_message(arguments->verb, "%s: %s; read to the last complete record, %" PRIu64 " in all",
                        arguments->input, info->end_text, info->records);
    return arguments->strict && (info->end_text || info->dropped) ? SG_EXIT_TRUNCATED : SG_EXIT_OK;
}

/* The file written to. With -f a new one that takes the other's place when it is whole. */
struct output {
    int fd;
    char path[4096]; /* "" for standard output */
};

/* 0, or an exit status after a message. */
static int trace_open_output(const struct arguments *arguments, struct output *ret)
{
    struct stat status;
    const char *name = arguments->output;
    ret->fd = STDOUT_FILENO;
    ret->path[0] = '\0';
    if (!name || !strcmp(name, "-"))
        return 0;
    bool replace = arguments->force && stat(name, &status) == 0 && S_ISREG(status.st_mode);
    int length = snprintf(ret->path, sizeof(ret->path), replace ? "%s.%ld.new" : "%s", name, (long)getpid());
    if ((size_t)length >= sizeof(ret->path))
        return sg_tool_error(arguments->verb, "%s: %s", name, strerror(ENAMETOOLONG));
    ret->fd = sg_tool_create(arguments->verb, ret->path, name, arguments->force);
    return ret->fd < 0 ? SG_EXIT_ERROR : 0;
}

/* After closing: puts the file in its place, or removes what is not whole. */
static int finish_output(const struct arguments *arguments, const struct output *output, int error, bool whole)
{
    struct stat status;
    bool regular = output->path[0] && stat(output->path, &status) == 0 && S_ISREG(status.st_mode);
    if (regular && !error && whole && strcmp(output->path, arguments->output) != 0 &&
        rename(output->path, arguments->output) < 0)
        error = -errno;
    if (regular && (error || !whole))
        unlink(output->path);
    return error ? sg_tool_error(arguments->verb, "%s: %s", output->path[0] ? arguments->output : "standard output",
                                 strerror(-error)) : 0;
}

static int copy_rows(const struct arguments *arguments, struct sg_trace_reader *reader, FILE *out)
{
    struct sg_dictionary dictionary = {0};
    struct segalloc_trace_record *record = malloc(BATCH * sizeof(*record));
    struct sg_progress progress = {0};
    uint64_t start = 0;
    bool started = false;
    int error = record ? 0 : -ENOMEM;
    size_t n;
    if (fputs(SG_RMM_HEADER "\n", out) < 0)
        error = -errno;
    while (!error && (n = sg_trace_read(reader, record, BATCH)) > 0) {
        for (size_t i = 0; i < n && !error; i++) {
            char row[SG_RMM_ROW];
            error = sg_dictionary_add(&dictionary, &record[i]);
            size_t length = sg_rmm_row(&dictionary, &record[i], row);
            if (!length)
                continue;
            if (!started)
                start = record[i].time_ns;
            started = true;
            uint64_t time = record[i].time_ns > start ? record[i].time_ns - start : 0;
            if (time < arguments->from_ns || time >= arguments->to_ns)
                continue;
            if (arguments->one_device &&
                sg_dictionary_stream(&dictionary, record[i].stream)->device != arguments->device)
                continue;
            if (fwrite(row, 1, length, out) != length)
                error = -errno;
        }
        sg_progress_show(&progress, "writing", sg_trace_progress(reader));
    }
    sg_progress_end(&progress);
    free(record);
    sg_dictionary_free(&dictionary);
    return error;
}

static int trace_cat(const struct arguments *arguments, struct sg_trace_reader *reader)
{
    struct output output;
    if (sg_tool_would_lose(arguments->verb, arguments->input, arguments->output))
        return SG_EXIT_ERROR;
    int status = trace_open_output(arguments, &output);
    if (status)
        return status;
    FILE *out = output.fd == STDOUT_FILENO ? stdout : fdopen(output.fd, "w");
    int error = out ? copy_rows(arguments, reader, out) : -errno;
    if (out && (out == stdout ? fflush(out) : fclose(out)) && !error)
        error = -errno;
    status = finish_output(arguments, &output, error, true);
    return status ? status : check_end(arguments, reader);
}

/* How an export ended, where it is not of the file alone. */
static int export_problem(const struct arguments *arguments, int error)
{
    if (error == -ENOENT)
        return sg_tool_error(arguments->verb, "%s: no allocation failed in it", arguments->input);
    if (error == -ESPIPE)
        return sg_tool_error(arguments->verb, "%s: a file is needed, for it is read twice", arguments->input);
    return 0;
}

static int trace_export(const struct arguments *arguments, struct sg_trace_reader *reader)
{
    struct output output;
    struct sg_exported exported = {0};
    const struct sg_export_format *format = arguments->format ? arguments->format : sg_export_format(NULL);
    const struct sg_export_options options = {
        .moment = arguments->moment != SG_MOMENT_AUTO ? arguments->moment : format->moment,
        .from_ns = arguments->from_ns,
        .to_ns = arguments->to_ns,
        .points = arguments->points,
        .window = arguments->windowed ? &arguments->window : NULL,
    };
    if (options.window && format->moment != SG_MOMENT_PEAK)
        return sg_tool_usage(arguments->verb, "--window is for formats of one moment, not \"%s\"", format->name);
    if (!arguments->output)
        return sg_tool_usage(arguments->verb, "export needs -o OUTPUT");
    if (sg_tool_would_lose(arguments->verb, arguments->input, arguments->output))
        return SG_EXIT_ERROR;
    int status = trace_open_output(arguments, &output);
    if (status)
        return status;
    FILE *out = output.fd == STDOUT_FILENO ? stdout : fdopen(output.fd, "w");
    int error = out ? format->write(reader, &options, out, &exported) : -errno;
    if (out && (out == stdout ? fflush(out) : fclose(out)) && !error)
        error = -errno;
    status = export_problem(arguments, error);
    if (status)
        (void)finish_output(arguments, &output, 0, false);
    else
        status = finish_output(arguments, &output, error, !sg_trace_error(reader));
    if (!status && format == sg_export_format(NULL) && exported.shown > VIEWED_WELL)
        sg_tool_message(arguments->verb,
            "%" PRIu64 " events were written; the viewer shows %d well, --from and --to leave "
            "some out",
            exported.shown, VIEWED_WELL);
    return status ? status : check_end(arguments, reader);
}

static int copy_records(struct sg_trace_reader *reader, int fd)
{
    const struct sg_trace_info *info = sg_trace_info(reader);
    struct segalloc_trace_record *record = malloc(BATCH * sizeof(*record));
    struct sg_trace_output *output;
    struct sg_progress progress = {0};
    int error = record ? sg_trace_output_open(fd, &info->header, info->conf, info->command, &output) : -ENOMEM;
    if (error) {
        free(record);
        return error;
    }
    size_t n;
    while (!error && (n = sg_trace_read(reader, record, BATCH)) > 0) {
        for (size_t i = 0; i < n && !error; i++)
            if (record[i].kind != SEGALLOC_RECORD_END)
                error = sg_trace_output_put(output, &record[i]);
        sg_progress_show(&progress, "importing", sg_trace_progress(reader));
    }
    sg_progress_end(&progress);
    free(record);
    int closed = sg_trace_output_close(output, info->dropped);
    return error ? error : closed;
}

static int trace_import(const struct arguments *arguments, struct sg_trace_reader *reader)
{
    if (!arguments->output)
        return sg_tool_usage(arguments->verb, "import needs -o TRACE");
    if (!strcmp(arguments->output, "-") && isatty(STDOUT_FILENO))
        return sg_tool_usage(arguments->verb, "a trace is not written to a terminal");
    if (sg_tool_would_lose(arguments->verb, arguments->input, arguments->output))
        return SG_EXIT_ERROR;
    struct output output;
    int status = trace_open_output(arguments, &output);
    if (status)
        return status;
    int error = copy_records(reader, output.fd);
    if (output.path[0] && close(output.fd) < 0 && !error)
        error = -errno;
    status = finish_output(arguments, &output, error, !sg_trace_error(reader));
    return status ? status : check_end(arguments, reader);
}

static int trace_info(const struct arguments *arguments, struct sg_trace_reader *reader)
{
    struct sg_summary summary;
    int error = sg_summary_read(&summary, reader, true), status = SG_EXIT_OK;
    if (error)
        status = sg_tool_error(arguments->verb, "%s: %s", arguments->input, strerror(-error));
    else if (sg_trace_error(reader))
        status = sg_tool_error(arguments->verb, "%s: %s", arguments->input, sg_trace_error(reader));
    else if (arguments->json)
        sg_trace_info_json(arguments->input, sg_trace_info(reader), &summary);
    else
        sg_trace_info_text(sg_trace_info(reader), &summary);
    if (!status && arguments->strict && sg_trace_info(reader)->end_text)
        status = SG_EXIT_TRUNCATED;
    if (sg_trace_info(reader)->end == SG_TRACE_DAMAGED && !error)
        status = check_end(arguments, reader);
    else if (!status && !summary.events)
        status = sg_tool_error(arguments->verb, "%s: the trace has no events", arguments->input);
    sg_summary_free(&summary);
    return status;
}

static bool parse_seconds(const char *text, uint64_t *ret_ns)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0) || value > 1e9)
        return false;
    *ret_ns = (uint64_t)(value * 1e9 + 0.5);
    return true;
}

static bool parse_window(const char *text, struct sg_window *ret)
{
    struct sg_window found;
    int length = 0;
    int fields = sscanf(text, "%" SCNu32 ":%" SCNu64 ":%" SCNu64 ":%" SCNu64 "%n", &found.device, &found.allocs,
        &found.frees, &found.last_alloc, &length);
    if (fields != 4 || text[length] || strchr(text, '-') || found.device >= SG_DICTIONARY_DEVICES)
        return false;
    *ret = found;
    return true;
}

static bool parse_moment(const char *text, enum sg_moment *ret)
{
    static const char *const names[] =
        {[SG_MOMENT_PEAK] = "peak", [SG_MOMENT_FAILURE] = "failure", [SG_MOMENT_END] = "end"};
    for (int i = SG_MOMENT_PEAK; i <= SG_MOMENT_END; i++)
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum sg_moment)i;
            return true;
        }
    return false;
}

/* 0, or an exit status after a message. */
static int trace_read_arguments(struct sg_cli *cli, struct arguments *ret)
{
    for (int option; (option = sg_cli_next(cli)) >= 0;) {
        char *end;
        switch ((enum option_of_verb)option) {
        case OPTION_from:
        case OPTION_to:
            if (option == OPTION_to && parse_moment(optarg, &ret->moment))
                break;
            if (!parse_seconds(optarg, option == OPTION_from ? &ret->from_ns : &ret->to_ns))
                return sg_tool_usage(ret->verb, "--%s takes seconds such as 12.5, not \"%s\"",
                    option == OPTION_from ? "from" : "to", optarg);
            ret->moment = option == OPTION_to ? SG_MOMENT_TIME : ret->moment;
            break;
        case OPTION_format:
            ret->format = sg_export_format(optarg);
            if (!ret->format)
                return sg_tool_usage(ret->verb, "there is no format \"%s\"", optarg);
            break;
        case OPTION_points:
            ret->points = strtoull(optarg, &end, 10);
            if (end == optarg || *end || *optarg == '-')
                return sg_tool_usage(ret->verb, "--points takes a number, not \"%s\"", optarg);
            break;
        case OPTION_window:
            if (!parse_window(optarg, &ret->window))
                return sg_tool_usage(ret->verb, "--window takes DEVICE:ALLOCS:FREES:ALLOCS, not \"%s\"", optarg);
            ret->windowed = true;
            break;
        case OPTION_device:
            ret->device = (uint32_t)strtoul(optarg, &end, 10);
            ret->one_device = true;
            if (end == optarg || *end || ret->device >= SG_DICTIONARY_DEVICES)
                return sg_tool_usage(ret->verb, "--device takes a number below %d, not \"%s\"", SG_DICTIONARY_DEVICES,
                                     optarg);
            break;
        case OPTION_output:
            ret->output = optarg;
            break;
        case OPTION_force:
            ret->force = true;
            break;
        case OPTION_json:
            ret->json = true;
            break;
        case OPTION_strict:
            ret->strict = true;
            break;
        }
    }
    return cli->status;
}

int sg_verb_trace(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct arguments *arguments, struct sg_trace_reader *reader);
    } actions[] = {{"info", trace_info}, {"cat", trace_cat}, {"export", trace_export}, {"import", trace_import}};
    struct sg_cli cli;
    struct arguments arguments = {.verb = argv[0], .to_ns = UINT64_MAX, .points = POINTS};
    struct sg_trace_reader *reader;
    char error[SG_TRACE_ERROR];
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    int status = trace_read_arguments(&cli, &arguments);
    if (status)
        return status;
    if (optind == argc)
        return sg_tool_usage(argv[0], "info, cat, export or import?");
    const char *name = argv[optind];
    size_t action = 0, count = sizeof(actions) / sizeof(actions[0]);
    while (action < count && strcmp(name, actions[action].name) != 0)
        action++;
    if (action == count)
        return sg_tool_usage(argv[0], "there is no \"%s\"; it is info, cat, export or import", name);
    if (optind + 1 == argc)
        return sg_tool_usage(argv[0], "%s: which trace?", name);
    if (optind + 2 < argc)
        return sg_tool_usage(argv[0], "one trace at a time, \"%s\" is left over", argv[optind + 2]);
    arguments.input = argv[optind + 1];
    if (sg_trace_open(arguments.input, &reader, error) < 0)
        return sg_tool_error(argv[0], "%s: %s", arguments.input, error);
    status = actions[action].run(&arguments, reader);
    sg_trace_close(reader);
    return status;
}
