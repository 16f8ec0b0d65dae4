/* The command line of a verb, by its table: options are read and help is printed from the same rows, verbs/NAME.def. The manual and
   completion for shells are made from them too, in the build (cli/tables.py).

   For example, `segalloc trim --keep 512MiB 4711` gives OPTION_keep once, with "512MiB" in optarg, then -1; argv[optind] is "4711".
   `segalloc trim --kep 1` prints "there is no option --kep; did you mean --keep?", and leaves SG_EXIT_USAGE in `status`. */
#ifndef SG_CLI_CLI_H
#define SG_CLI_CLI_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>

/* Kinds of an option's value and of a verb's operands. Completion offers what is of the kind; two kinds have a list in the help. */
enum sg_cli_value {
    SG_CLI_NONE, /* the option takes no value */
    SG_CLI_TEXT, /* nothing is offered */
    SG_CLI_NUMBER,
    SG_CLI_SIZE,
    SG_CLI_WORDS, /* those of the argument: "peak|failure|end" */
    SG_CLI_KEYS,  /* each `key=` of the option's text */
    SG_CLI_FILE,
    SG_CLI_CARD_SIZE, /* sizes of cards that are sold */
    SG_CLI_CARDS,     /* these, or names of driver/cards.def, which the help lists */
    SG_CLI_SIM,       /* what --sim takes: sim/setting.def */
    SG_CLI_SETTINGS,  /* options of the library, "K:V,…" */
    SG_CLI_PARAMETER, /* parameters of `segalloc tune` */
    SG_CLI_FORMAT,    /* of export/formats.def, which the help lists */
    SG_CLI_FILES,     /* operands: files; */
    SG_CLI_PIDS,      /* numbers of processes; */
    SG_CLI_COMMAND,   /* a command: options end where it begins */
};

struct sg_cli_option {
    const char *name;     /* with _ for - */
    char letter;          /* 0: none */
    const char *argument; /* NULL: it takes none; "[=PARTS]": it may be left out */
    const char *text;     /* NULL: it is in the manual only */
    const char *initial;  /* the default in words; NULL: there is none, or it needs no word */
    enum sg_cli_value value;
};

struct sg_cli_term {
    const char *word, *text;
};

/* The table of a verb, which cli/rows.h makes. Lists end with a NULL in their first field. */
struct sg_cli_verb {
    const char *name;
    const char *const *usage, *const *about;
    const struct sg_cli_term *term;
    const struct sg_cli_option *option;
    const char *status;
    enum sg_cli_value operands;
};

enum { SG_CLI_OPTIONS = 32, SG_CLI_NAME = 32 };

/* A command line that is being read. `status` is not 0 once an option was wrong, which has been said then. */
struct sg_cli {
    const struct sg_cli_verb *verb;
    int argc, status;
    char **argv;
    struct option option[SG_CLI_OPTIONS + 1];
    char name[SG_CLI_OPTIONS][SG_CLI_NAME], letters[2 * SG_CLI_OPTIONS + 4];
};

/* Begins to read argv, argv[0] being the verb. False: --help stands among the options, and has been printed. */
bool sg_cli_begin(struct sg_cli *cli, const struct sg_cli_verb *verb, int argc, char **argv);

/* The next option, OPTION_name, with its value in optarg. -1 at the end, where optind is the first operand; also after an option that
   is wrong, with the exit status in `status`. */
int sg_cli_next(struct sg_cli *cli);

/* Prints the help of a verb to stdout, in lines of 80 columns at most. */
void sg_cli_help(const struct sg_cli_verb *verb);

#endif
