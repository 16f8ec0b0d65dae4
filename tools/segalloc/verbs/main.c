/* segalloc: one program, one verb a job. */
#include "tool.h"

#include "analysis/symbols.h"
#include "ascii.h"
#include "installed.h"
#include "reader/site_book.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *text;
    sg_verb *call;
} verbs[] = {
#define VERB(name, text) {#name, text, sg_verb_##name},
#include "cli/verbs.def"
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static int main_help(void)
{
    puts("usage: segalloc VERB [OPTION]… [ARGUMENT]…\n"
         "A caching CUDA allocator for any program, by LD_PRELOAD; these are its tools.\n");
    for (unsigned i = 0; i < VERBS; i++)
        printf("  %-8s  %s\n", verbs[i].name, verbs[i].text);
    puts("\n`segalloc VERB --help` says more. Start with: segalloc run -- CMD\n"
         "  -h, --help      print this\n"
         "  -V, --version   print the version\n"
         "  --preload-path  print the library's path, for LD_PRELOAD\n"
         "`segalloc man [VERB]` shows the manual, `segalloc completion bash|zsh|fish` prints\n"
         "what a shell completes by: eval \"$(segalloc completion bash)\"");
    return SG_EXIT_OK;
}

static int main_unknown_verb(const char *word)
{
    if (*word == '-')
        return sg_tool_usage("", "there is no option %s", word);
    const char *names[VERBS];
    for (unsigned i = 0; i < VERBS; i++)
        names[i] = verbs[i].name;
    const char *nearest = sg_ascii_nearest(word, names, VERBS);
    if (nearest)
        return sg_tool_usage("", "there is no verb \"%s\"; did you mean %s?", word, nearest);
    return sg_tool_usage("", "there is no verb \"%s\"", word);
}

static int main_dispatch(int argc, char **argv)
{
    if (argc < 2)
        return sg_tool_usage("", "which verb?");
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return main_help();
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        puts("segalloc " SEGALLOC_VERSION);
        return SG_EXIT_OK;
    }
    if (strcmp(word, "--preload-path") == 0)
        return sg_installed_preload();
    if (strcmp(word, "man") == 0)
        return sg_installed_man(argc > 2 ? argv[2] : NULL);
    if (strcmp(word, "completion") == 0)
        return argc > 2 ? sg_installed_completion(argv[2]) : sg_tool_usage("", "completion for which shell: bash, zsh or fish?");
    char help_option[] = "--help", *help_arguments[] = {argv[0], NULL, help_option, NULL};
    if (strcmp(word, "help") == 0) {
        if (argc == 2)
            return main_help();
        word = help_arguments[1] = argv[2];
        argc = 3;
        argv = help_arguments;
    }
    for (unsigned i = 0; i < VERBS; i++) {
        if (strcmp(word, verbs[i].name) == 0)
            return verbs[i].call(argc - 1, argv + 1);
    }
    return main_unknown_verb(word);
}

int main(int argc, char **argv)
{
    sg_site_book_pass_over(sg_symbols_is_wrapper);
    int status = main_dispatch(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == SG_EXIT_OK)
        return sg_tool_error("", "standard output can't be written");
    return status;
}
