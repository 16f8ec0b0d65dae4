#include "installed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "install_paths.h"
#include "tool.h"

int sg_installed_preload(void)
{
    char library[SG_PLACE_BYTES];
    if (!sg_place_library(library))
        return sg_tool_error("", "libsegalloc.so.0 is neither beside this program nor in %s; name it in SEGALLOC_LIB",
            SEGALLOC_LIBDIR);
    puts(library);
    return SG_EXIT_OK;
}

/* Beside the program where it is installed, or in the build folder. */
static bool find_file(const char *installed, const char *built, char ret[SG_PLACE_BYTES])
{
    char folder[SG_PLACE_BYTES];
    if (!sg_tool_folder(folder, sizeof folder))
        return false;
    const char *const relative[] = {built, installed};
    for (int i = 0; i < 2; i++)
        if (snprintf(ret, SG_PLACE_BYTES, "%.3000s/%.1000s", folder, relative[i]) > 0 && access(ret, R_OK) == 0)
            return true;
    return false;
}

/* The file of a page, whose section is the end of its name: in section 1 are the verbs, in 5 the configuration, in 7 words. */
static bool find_page(const char *name, char ret[SG_PLACE_BYTES])
{
    static const char sections[] = "157";
    char installed[256], built[256];
    for (const char *section = sections; *section; section++) {
        snprintf(installed, sizeof installed, "../share/man/man%c/%.100s.%c", *section, name, *section);
        snprintf(built, sizeof built, "../../docs/man/%.100s.%c", name, *section);
        if (find_file(installed, built, ret))
            return true;
    }
    return false;
}

int sg_installed_man(const char *page)
{
    char path[SG_PLACE_BYTES], verb[128];
    snprintf(verb, sizeof verb, "segalloc-%.100s", page ? page : "");
    bool named = page && !strchr(page, '/');
    if (page ? !named || (!find_page(verb, path) && !find_page(page, path)) : !find_page("segalloc", path))
        return sg_tool_error("", "there is no page %s here: `segalloc VERB --help` says the most of it", page ? page : "segalloc");
    execlp("man", "man", path, (char *)NULL);
    return sg_tool_error("", "man can't be run (%s); the page is %s", strerror(errno), path);
}

int sg_installed_completion(const char *shell)
{
    static const struct {
        const char *shell, *installed, *built;
    } files[] = {
        {"bash", "../share/bash-completion/completions/segalloc", "../completion/segalloc"},
        {"zsh", "../share/zsh/site-functions/_segalloc", "../completion/_segalloc"},
        {"fish", "../share/fish/vendor_completions.d/segalloc.fish", "../completion/segalloc.fish"},
    };
    char path[SG_PLACE_BYTES], bytes[8192];
    size_t i = 0;
    while (i < 3 && strcmp(files[i].shell, shell) != 0)
        i++;
    if (i == 3)
        return sg_tool_usage("", "completion is for bash, zsh or fish, not \"%s\"", shell);
    FILE *file = find_file(files[i].installed, files[i].built, path) ? fopen(path, "re") : NULL;
    if (!file)
        return sg_tool_error("", "the completion for %s is not installed", shell);
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, file)) > 0;)
        fwrite(bytes, 1, got, stdout);
    fclose(file);
    return SG_EXIT_OK;
}
