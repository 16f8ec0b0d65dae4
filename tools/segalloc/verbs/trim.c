/* segalloc trim: asks a running program, by the table of its user's processes, to give its idle memory back. */
#include "tool.h"

#include "json.h"
#include "neighbours.h"
#include "size.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define CLI_VERB "trim"
#define CLI_ROWS "verbs/trim.def"
#include "cli/rows.h"

#define TIMEOUT_NS UINT64_C(10000000000)
enum { TIMEOUT_S = 10 };

static int trim_ask(const char *verb, pid_t pid, uint64_t keep, uint64_t *ret_given)
{
    char path[48];
    struct stat status;
    struct sg_neighbours *table;
    snprintf(path, sizeof path, "/proc/%ld", (long)pid);
    if (stat(path, &status) != 0)
        return sg_tool_error(verb, "there is no process %ld", (long)pid);
    int error = sg_neighbours_map(status.st_uid, /* create */ false, &table);
    struct sg_neighbour *other = error ? NULL : sg_neighbours_find(table, pid);
    if (error == -EACCES)
        return sg_tool_error(verb, "process %ld is another user's", (long)pid);
    if (!other)
        return sg_tool_error(verb,
            "process %ld does not listen: it isn't under segalloc, has allocated nothing yet, or runs "
            "with trim_on_request:False",
            (long)pid);
    uint64_t before = atomic_load(&other->given);
    sg_neighbour_ask(other, UINT32_MAX, keep);
    if (!sg_neighbour_wait(other, TIMEOUT_NS))
        return sg_tool_error(verb,
            "process %ld has not answered for %d s: it may be stopped, or waits inside the driver", (long)pid,
            TIMEOUT_S);
    *ret_given = atomic_load(&other->given) - before;
    return SG_EXIT_OK;
}

int sg_verb_trim(int argc, char **argv)
{
    struct sg_cli cli;
    uint64_t keep = 0, given = 0;
    bool json = false;
    pid_t pid;
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    for (int option; (option = sg_cli_next(&cli)) >= 0;) {
        switch ((enum option_of_verb)option) {
        case OPTION_keep:
            if (!sg_tool_size(optarg, &keep))
                return sg_tool_usage(argv[0], "--keep takes a size with its unit, such as 512MiB, or 0, not \"%s\"",
                    optarg);
            break;
        case OPTION_json:
            json = true;
            break;
        }
    }
    if (cli.status)
        return cli.status;
    if (optind + 1 != argc)
        return sg_tool_usage(argv[0], optind == argc ? "which process?" : "one process at a time");
    if (!sg_tool_pid(argv[optind], &pid))
        return sg_tool_usage(argv[0], "\"%s\" is no process id", argv[optind]);
    int status = trim_ask(argv[0], pid, keep, &given);
    if (status != SG_EXIT_OK)
        return status;
    char size[SG_SIZE_TEXT];
    if (json) {
        json_t *result = sg_json_object("segalloc.trim/1");
        SG_JSON_NUMBERS(result, {"pid", (uint64_t)pid}, {"given_bytes", given});
        sg_json_print(result);
    } else {
        printf("%s given back\n", sg_size_format(given, size));
    }
    return SG_EXIT_OK;
}
