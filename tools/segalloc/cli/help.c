/* The help of a verb, from its table. */
#include "cli/cli.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, LABEL_MOST = 22, LABEL_BYTES = 96, TEXT_BYTES = 2048 };

static const char *const card_names[] = {
#define CARD(name, mib, rest_mib) name,
#include "cards.def"
};

static const struct sg_cli_term formats[] = {
#define FORMAT(name, text, moment) {#name, text},
#include "export/formats.def"
};

/* Columns of the first `bytes` of UTF-8. */
static int help_columns(const char *text, size_t bytes)
{
    int columns = 0;
    for (size_t i = 0; i < bytes; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

/* Bytes up to the next place where a line may break: a space, in usage one outside brackets, "[-o TRACE [-f]]". */
static size_t help_word(const char *text, bool usage)
{
    size_t length = 0;
    int depth = 0;
    for (; text[length] && (text[length] != ' ' || depth > 0); length++)
        depth += usage ? (text[length] == '[') - (text[length] == ']') : 0;
    return length;
}

/* Prints a text from `column` on, where the cursor is, with further lines that begin there too. Ends the line. */
static void help_wrap(const char *text, int column, bool usage)
{
    int at = column;
    while (*text) {
        size_t length = help_word(text, usage);
        int wide = help_columns(text, length);
        if (at > column && at + 1 + wide > WIDTH) {
            printf("\n%*s", column, "");
            at = column;
        } else if (at > column) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)length, text);
        at += wide;
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void help_usage(const struct sg_cli_verb *verb)
{
    for (size_t i = 0; verb->usage[i]; i++)
        help_wrap(verb->usage[i], printf("%s segalloc %s ", i ? "      " : "usage:", verb->name), true);
}

/* Below a label that is too wide its text begins on a line of its own. */
static void help_entry(const char *label, const char *text, int column)
{
    int wide = help_columns(label, strlen(label));
    printf("%s", label);
    if (wide + 2 > column)
        printf("\n%*s", column, "");
    else
        printf("%*s", column - wide, "");
    help_wrap(text, column, false);
}

static void help_terms(const struct sg_cli_term *term, size_t count, int indent)
{
    int column = 0;
    for (size_t i = 0; i < count; i++) {
        int wide = indent + (int)strlen(term[i].word) + 2;
        column = wide > column ? wide : column;
    }
    for (size_t i = 0; i < count; i++) {
        char label[LABEL_BYTES];
        snprintf(label, sizeof label, "%*s%s", indent, "", term[i].word);
        help_entry(label, term[i].text, column);
    }
}

static const char *help_label(const char *name, char letter, const char *argument, char ret[LABEL_BYTES])
{
    int length = snprintf(ret, LABEL_BYTES, letter ? "  -%c, --" : "      --", letter);
    for (; *name && length < LABEL_BYTES - 1; name++)
        ret[length++] = *name == '_' ? '-' : *name;
    snprintf(ret + length, (size_t)(LABEL_BYTES - length), "%s%s",
        argument && strncmp(argument, "[=", 2) != 0 ? " " : "", argument ? argument : "");
    return ret;
}

static void help_option(const struct sg_cli_option *option, int column)
{
    char label[LABEL_BYTES], text[TEXT_BYTES];
    size_t length = (size_t)snprintf(text, sizeof text, "%s", option->text);
    for (size_t i = 0; option->value == SG_CLI_CARDS && i < sizeof card_names / sizeof *card_names; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", i ? ", " : ": ", card_names[i]);
    assert(length < sizeof text);
    if (option->initial)
        snprintf(text + length, sizeof text - length, " (default: %s)", option->initial);
    help_entry(help_label(option->name, option->letter, option->argument, label), text, column);
    if (option->value == SG_CLI_FORMAT)
        help_terms(formats, sizeof formats / sizeof *formats, column + 2);
}

/* Where the texts of options begin: behind the widest label that is not too wide. */
static int help_column(const struct sg_cli_verb *verb)
{
    char label[LABEL_BYTES];
    int most = 0;
    for (const struct sg_cli_option *option = verb->option; option->name; option++) {
        help_label(option->name, option->letter, option->argument, label);
        int wide = help_columns(label, strlen(label));
        most = option->text && wide <= LABEL_MOST && wide > most ? wide : most;
    }
    return most + 2;
}

void sg_cli_help(const struct sg_cli_verb *verb)
{
    int column = help_column(verb);
    size_t terms = 0;
    help_usage(verb);
    for (size_t i = 0; verb->about[i]; i++) {
        if (i)
            putchar('\n');
        help_wrap(verb->about[i], 0, false);
    }
    while (verb->term[terms].word)
        terms++;
    if (terms)
        putchar('\n');
    help_terms(verb->term, terms, 2);
    putchar('\n');
    for (const struct sg_cli_option *option = verb->option; option->name; option++)
        if (option->text)
            help_option(option, column);
    help_entry("  -h, --help", "print this", column);
    char status[TEXT_BYTES];
    snprintf(status, sizeof status, "Exit status: %s", verb->status);
    putchar('\n');
    help_wrap(status, 0, false);
}
