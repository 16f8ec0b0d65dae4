/* Makes the table of one verb, `cli_verb`, and the enumerators OPTION_name of its options. The file of a verb includes this once, with
   CLI_VERB its name and CLI_ROWS the file of its rows, "verbs/NAME.def". The rows are:

   OPERANDS(value)      what follows the options, without SG_CLI_
   USAGE(text)          a line of usage, after `segalloc NAME`
   ABOUT(text)          a paragraph on what the verb does
   TERM(word, text)     a word of its output, or what it is asked to do
   OPTION(name, letter, argument, value, text, initial, more)
                        an option, with _ for - in its name. The text is in the help and in the manual: "leave as much on each
                        device"; NULL leaves the option out of the help. `initial` is the default, as words, or NULL; `more` stands in the
                        manual alone, "" for nothing
   STATUS(text)         the exit statuses

   Texts are plain: they are wrapped for a terminal, and marked up for the manual by how a word is written (--option, METAVARIABLE,
   `command`). Every verb has -h and --help without a row. */
#include "cli/cli.h"

enum option_of_verb {
#include "cli/no_rows.h"
#undef OPTION
#define OPTION(name, letter, argument, value, text, initial, more) OPTION_##name,
#include CLI_ROWS
};

static const char *const cli_usage[] = {
#include "cli/no_rows.h"
#undef USAGE
#define USAGE(text) text,
#include CLI_ROWS
    NULL};

static const char *const cli_about[] = {
#include "cli/no_rows.h"
#undef ABOUT
#define ABOUT(text) text,
#include CLI_ROWS
    NULL};

static const struct sg_cli_term cli_terms[] = {
#include "cli/no_rows.h"
#undef TERM
#define TERM(word, text) {#word, text},
#include CLI_ROWS
    {NULL, NULL}};

static const struct sg_cli_option cli_options[] = {
#include "cli/no_rows.h"
#undef OPTION
#define OPTION(name, letter, argument, value, text, initial, more) \
    {#name, letter, argument, text, initial, SG_CLI_##value},
#include CLI_ROWS
    {0}};

static const struct sg_cli_verb cli_verb = {
    .name = CLI_VERB,
    .usage = cli_usage,
    .about = cli_about,
    .term = cli_terms,
    .option = cli_options,
#include "cli/no_rows.h"
#undef STATUS
#undef OPERANDS
#define STATUS(text) .status = text,
#define OPERANDS(value) .operands = SG_CLI_##value,
#include CLI_ROWS
};
