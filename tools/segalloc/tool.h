/* Common parts of the verbs of the command line: exit codes, messages, the places of our files. */
#ifndef SG_TOOL_H
#define SG_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* `run` and `doctor` give CMD's own status where CMD ran; the last three are env's and timeout's convention. */
enum {
    SG_EXIT_OK = 0,
    SG_EXIT_ERROR = 1, /* data or run time */
    SG_EXIT_USAGE = 2,
    SG_EXIT_ABOVE = 3,     /* report --fail-above */
    SG_EXIT_NOT_FIT = 3,   /* replay, rehearse */
    SG_EXIT_DIFFERS = 3,   /* selftest */
    SG_EXIT_TRUNCATED = 4, /* --strict, and the trace is usable but incomplete */
    SG_EXIT_FINDINGS = 4,  /* run --check=fail */
    SG_EXIT_OURS = 125,
    SG_EXIT_NOT_EXECUTABLE = 126,
    SG_EXIT_NOT_FOUND = 127
};

/* A verb: argv[0] is its name, and getopt's state is fresh. Prints its --help to stdout.
   The result is the exit status; main() flushes stdout and turns a failure of that into SG_EXIT_ERROR. */
typedef int sg_verb(int argc, char **argv);
#define VERB(name, text) sg_verb sg_verb_##name;
#include "cli/verbs.def"

/* "segalloc VERB: message" on stderr, in one line. */
__attribute__((format(printf, 2, 3))) void sg_tool_message(const char *verb, const char *format, ...);

/* Prints a message as sg_tool_message() does; returns SG_EXIT_ERROR. */
__attribute__((format(printf, 2, 3))) int sg_tool_error(const char *verb, const char *format, ...);

/* Prints a message with " (see segalloc VERB --help)" after it; returns SG_EXIT_USAGE. */
__attribute__((format(printf, 2, 3))) int sg_tool_usage(const char *verb, const char *format, ...);

/* The number of a process as it is typed: digits alone, from 1. False: it is none. */
bool sg_tool_pid(const char *text, pid_t *ret);

/* True if a process of this number runs, and its command line, with spaces, is `command`. */
bool sg_tool_runs(uint64_t pid, const char *command);

/* A size of a card or a limit. A small number without a unit is refused, for "24" is hardly 24 bytes. False: it is
   none, 0, or beyond what a device may have. */
bool sg_tool_card(const char *text, uint64_t *ret);

/* A size of anything else, by the rules of sg_tool_card() but for 0, which is one. */
bool sg_tool_size(const char *text, uint64_t *ret);

/* Prints a name of a file, a command or a text of a trace, which may hold anything, by sg_plain_text(). */
void sg_tool_print_plain(const char *text);

/* True if `output` (NULL: none) is the same file as `input`, whatever the two are called. A line on stderr says so,
   because it would be lost before it was read. */
bool sg_tool_would_lose(const char *verb, const char *input, const char *output);

/* Opens a new file to write to; with `force` also one that is there. `name` is what the user called it. The file, or -1
   after a message. */
int sg_tool_create(const char *verb, const char *path, const char *name, bool force);

/* Folder of the running program without a final slash, by /proc/self/exe. False when that can't be read. */
bool sg_tool_folder(char *buffer, size_t size);

/* From here on no memory of this process is in huge pages: the tables of an allocator on a card of the largest kind, of
   which a trace touches little here and there, would take 100 MiB and more. Replays are no slower for it. */
void sg_tool_small_pages(void);

#endif
