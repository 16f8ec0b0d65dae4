/* segalloc resume: has a running program resume memory of a tag (verbs/order.h). */
#include "tool.h"

#include "verbs/order.h"

#define CLI_VERB "resume"
#define CLI_ROWS "verbs/resume.def"
#include "cli/rows.h"

int sg_verb_resume(int argc, char **argv)
{
    struct sg_cli cli;
    const char *tag = NULL;
    bool json = false;
    int status;
    pid_t pid;
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    for (int option; (option = sg_cli_next(&cli)) >= 0;) {
        switch ((enum option_of_verb)option) {
        case OPTION_tag:
            tag = optarg;
            break;
        case OPTION_json:
            json = true;
            break;
        }
    }
    if (cli.status || !sg_order_check(argv[0], argc, argv, optind, tag, &pid, &status))
        return cli.status ? cli.status : status;
    return sg_order_give(argv[0], pid, SG_NEIGHBOUR_RESUME, tag, json);
}
