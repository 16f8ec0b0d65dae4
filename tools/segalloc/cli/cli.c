#include "cli/cli.h"

#include "ascii.h"
#include "tool.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Results of getopt_long(): -h, and the first option. Letters of options lie between. */
enum { HELP = 'h', FIRST = 256 };

/* True if the value of an option may be left out: "[=PARTS]", but not "[ADDRESS:]PORT". */
static bool cli_may_lack_value(const struct sg_cli_option *row)
{
    return row->argument && strncmp(row->argument, "[=", 2) == 0;
}

static struct option *cli_add(struct sg_cli *cli, size_t at, const char *name, int takes)
{
    assert(at < SG_CLI_OPTIONS && strlen(name) < SG_CLI_NAME);
    char *copy = cli->name[at];
    for (size_t i = 0; name[i]; i++)
        copy[i] = name[i] == '_' ? '-' : name[i];
    cli->option[at] = (struct option){copy, takes, NULL, 0};
    return &cli->option[at];
}

/* getopt's two tables. A leading ':' has it tell a missing value from an option that it does not know; '+' has it stop at the
   first operand. */
static void cli_tables(struct sg_cli *cli)
{
    char *letter = cli->letters;
    size_t count = 0;
    if (cli->verb->operands == SG_CLI_COMMAND)
        *letter++ = '+';
    *letter++ = ':';
    *letter++ = HELP;
    for (const struct sg_cli_option *row = cli->verb->option; row->name; row++, count++) {
        int takes = !row->argument ? no_argument : cli_may_lack_value(row) ? optional_argument : required_argument;
        cli_add(cli, count, row->name, takes)->val = FIRST + (int)count;
        if (row->letter)
            *letter++ = row->letter;
        if (row->letter && row->argument)
            *letter++ = ':';
        assert(!row->letter || !cli_may_lack_value(row));
    }
    cli_add(cli, count, "help", no_argument)->val = HELP;
}

/* True where the help is asked for. The user wants it even if another option is wrong. */
static bool cli_asks_for_help(const struct sg_cli *cli)
{
    int option;
    while ((option = getopt_long(cli->argc, cli->argv, cli->letters, cli->option, NULL)) != -1 && option != HELP)
        ;
    optind = 0; /* GNU's and musl's way to begin anew */
    return option == HELP;
}

bool sg_cli_begin(struct sg_cli *cli, const struct sg_cli_verb *verb, int argc, char **argv)
{
    opterr = 0; /* the messages are ours */
    *cli = (struct sg_cli){.verb = verb, .argc = argc, .argv = argv};
    cli_tables(cli);
    if (!cli_asks_for_help(cli))
        return true;
    sg_cli_help(verb);
    return false;
}

/* Names the option for which getopt_long() gave `result`, '?' or ':', and the nearest that there is. */
static int cli_bad_option(const struct sg_cli *cli, int result)
{
    const char *verb = cli->argv[0], *word = cli->argv[optind - 1], *names[SG_CLI_OPTIONS + 1];
    char letter[3] = {'-', (char)optopt, '\0'};
    bool is_long = strncmp(word, "--", 2) == 0;
    size_t count = 0;
    if (result == ':')
        return sg_tool_usage(verb, "%s needs a value", is_long ? word : letter);
    if (!is_long)
        return sg_tool_usage(verb, "there is no option %s", optopt ? letter : word);
    for (; cli->option[count].name; count++)
        names[count] = cli->option[count].name;
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(word + 2, "=");
        if (word[2 + length] && strlen(names[i]) == length && strncmp(word + 2, names[i], length) == 0)
            return sg_tool_usage(verb, "--%s takes no value", names[i]);
    }
    const char *nearest = sg_ascii_nearest(word + 2, names, count);
    if (nearest)
        return sg_tool_usage(verb, "there is no option %s; did you mean --%s?", word, nearest);
    return sg_tool_usage(verb, "there is no option %s", word);
}

int sg_cli_next(struct sg_cli *cli)
{
    int option = getopt_long(cli->argc, cli->argv, cli->letters, cli->option, NULL);
    if (option >= FIRST)
        return option - FIRST;
    if (option == -1)
        return -1;
    for (int i = 0; cli->verb->option[i].name; i++)
        if (option == cli->verb->option[i].letter)
            return i;
    cli->status = cli_bad_option(cli, option);
    return -1;
}
