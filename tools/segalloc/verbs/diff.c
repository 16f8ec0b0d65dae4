/* segalloc diff: what two traces hold at their peaks, row by row; the rows sum to the difference of the peaks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "diff/comparison.h"
#include "tool.h"
#include "reader/trace_reader.h"

#define CLI_VERB "diff"
#define CLI_ROWS "verbs/diff.def"
#include "cli/rows.h"

static int read_side(const char *verb, const char *path, enum sg_moment moment, struct sg_comparison *comparison,
    int side)
{
    struct sg_groups *ret = &comparison->side[side];
    struct sg_trace_reader *reader;
    char problem[SG_TRACE_ERROR];
    if (sg_trace_open(path, &reader, problem) < 0)
        return sg_tool_error(verb, "%s: %s", path, problem);
    int error = sg_groups_read(reader, moment, UINT64_MAX, ret), status = SG_EXIT_OK;
    const struct sg_trace_info *info = sg_trace_info(reader);
    if (sg_trace_error(reader))
        status = sg_tool_error(verb, "%s: %s", path, sg_trace_error(reader));
    else if (error == -ENOENT)
        status = sg_tool_error(verb, "%s: no allocation failed in it", path);
    else if (error == -ESPIPE)
        status = sg_tool_error(verb, "%s: a file is needed, for it is read twice", path);
    else if (error)
        status = sg_tool_error(verb, "%s: %s", path, strerror(-error));
    else if (info->end == SG_TRACE_DAMAGED)
        status = sg_tool_error(verb, "%s: %s", path, info->end_text);
    else if (!ret->moment.all)
        status = sg_tool_error(verb, "%s: the trace has no events", path);
    /* Dropped records leave a replay without what it needs. */
    error = status || info->dropped ? -ENODATA : sg_moves_read(reader, &comparison->moves[side]);
    comparison->knows_moves[side] = !error;
    if (error == -ENOMEM)
        status = sg_tool_error(verb, "out of memory");
    sg_trace_close(reader);
    return status;
}

int sg_verb_diff(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum sg_moment moment;
    } moments[] = {{"peak", SG_MOMENT_PEAK}, {"failure", SG_MOMENT_FAILURE}, {"end", SG_MOMENT_END}};
    enum sg_moment moment = SG_MOMENT_PEAK;
    struct sg_cli cli;
    bool all = false, json = false, by_size = false;
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    for (int option; (option = sg_cli_next(&cli)) >= 0;) {
        size_t i = 0;
        switch ((enum option_of_verb)option) {
        case OPTION_all:
            all = true;
            break;
        case OPTION_json:
            json = true;
            break;
        case OPTION_by:
            by_size = strcmp(optarg, "size") == 0;
            if (!by_size && strcmp(optarg, "line") != 0)
                return sg_tool_usage(argv[0], "--by takes line or size, not \"%s\"", optarg);
            break;
        case OPTION_at:
            while (i < 3 && strcmp(optarg, moments[i].name) != 0)
                i++;
            if (i == 3)
                return sg_tool_usage(argv[0], "--at takes peak, failure or end, not \"%s\"", optarg);
            moment = moments[i].moment;
            break;
        }
    }
    if (cli.status)
        return cli.status;
    if (argc - optind != 2)
        return sg_tool_usage(argv[0], "two traces are compared, not %d", argc - optind);
    struct sg_comparison comparison = {.by_size = by_size};
    int status = SG_EXIT_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = read_side(argv[0], argv[optind + i], moment, &comparison, i);
    if (!status && (sg_compare(&comparison) < 0 || sg_compare_moves(&comparison) < 0))
        status = sg_tool_error(argv[0], "out of memory");
    if (!status && json)
        sg_comparison_print_json(argv + optind, &comparison);
    else if (!status)
        sg_comparison_print_text(&comparison, all);
    for (int i = 0; i < 2; i++) {
        sg_groups_free(&comparison.side[i]);
        sg_moves_free(&comparison.moves[i]);
    }
    free(comparison.row);
    free(comparison.moved);
    return status;
}
