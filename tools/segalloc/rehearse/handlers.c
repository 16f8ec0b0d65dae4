#include "rehearse/handlers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of a file as lines, as far as they are needed. */
struct source {
    char **line;
    uint64_t lines, room;
};

static void free_source(struct source *source)
{
    for (uint64_t i = 0; i < source->lines; i++)
        free(source->line[i]);
    free(source->line);
}

static bool add_line(struct source *source, char *line)
{
    if (source->lines == source->room) {
        uint64_t room = source->room ? 2 * source->room : 256;
        char **larger = realloc(source->line, room * sizeof *larger);
        if (!larger)
            return false;
        source->line = larger;
        source->room = room;
    }
    source->line[source->lines++] = line;
    return true;
}

static bool read_source(const char *path, struct source *ret)
{
    enum { LINES_MOST = 100000 };
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    *ret = (struct source){0};
    while (file && ret->lines < LINES_MOST && getline(&line, &size, file) >= 0) {
        if (!add_line(ret, line))
            break;
        line = NULL;
        size = 0;
    }
    free(line);
    if (file)
        fclose(file);
    return ret->lines > 0;
}

/* Columns before the statement; negative: there is none on this line. */
static int indent_of(const char *line)
{
    int columns = 0;
    for (; *line == ' ' || *line == '\t'; line++)
        columns += *line == '\t' ? 8 - columns % 8 : 1;
    return *line && *line != '\n' && *line != '\r' && *line != '#' ? columns : -1;
}

static bool line_begins_with(const char *line, const char *word)
{
    line += strspn(line, " \t");
    return strncmp(line, word, strlen(word)) == 0;
}

/* True if the text names running out of memory among errors. PyTorch's error is a RuntimeError. */
static bool names_running_out(const char *text)
{
    static const char *const names[] = {"OutOfMemory", "RuntimeError", "Exception", "MemoryError", "OOM"};
    bool any = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        any |= strstr(text, names[i]) != NULL;
    return any;
}

/* True if the handler "except …:" that begins in this line takes running out of memory. Its errors may stand in several lines. */
static bool takes_running_out(const struct source *source, uint64_t at)
{
    const char *rest = source->line[at] + strspn(source->line[at], " \t") + strlen("except");
    bool takes = rest[strspn(rest, " \t")] == ':', ends = takes;
    for (uint64_t i = at; i < source->lines && !ends; i++) {
        takes |= names_running_out(i == at ? rest : source->line[i]);
        ends = strchr(source->line[i], ':') != NULL;
    }
    return takes;
}

/* "with contextlib.suppress(RuntimeError):" */
static bool suppresses_running_out(const char *line)
{
    const char *errors = line_begins_with(line, "with ") ? strstr(line, "suppress(") : NULL;
    return errors && names_running_out(errors);
}

/* True if one of the handlers of the `try` in this line takes running out of memory. */
static bool has_handler(const struct source *source, uint64_t at)
{
    int indent = indent_of(source->line[at]);
    for (uint64_t i = at + 1; i < source->lines; i++) {
        int own = indent_of(source->line[i]);
        if (own < 0 || own > indent)
            continue;
        if (own < indent || !line_begins_with(source->line[i], "except"))
            return false;
        if (takes_running_out(source, i))
            return true;
    }
    return false;
}

/* True if what stands below this line, or behind it in the line, may run out of memory and the function goes on. */
static bool is_around(const struct source *source, uint64_t at)
{
    return (line_begins_with(source->line[at], "try:") && has_handler(source, at)) ||
           suppresses_running_out(source->line[at]);
}

/* Goes outward from the line, to the function that it is in. */
static bool is_handled(const struct source *source, uint64_t line)
{
    if (line == 0 || line > source->lines)
        return false;
    int indent = indent_of(source->line[line - 1]);
    if (is_around(source, line - 1)) /* "try: x = f()" */
        return true;
    for (uint64_t at = line - 1; at-- > 0 && indent > 0;) {
        int own = indent_of(source->line[at]);
        if (own < 0 || own >= indent)
            continue;
        if (is_around(source, at))
            return true;
        if (line_begins_with(source->line[at], "def ") || line_begins_with(source->line[at], "async def "))
            return false;
        indent = own;
    }
    return false;
}

bool sg_handler_is_around(const char *path, uint64_t line)
{
    struct source source;
    bool around = read_source(path, &source) && is_handled(&source, line);
    free_source(&source);
    return around;
}

bool sg_handler_ends_errors(const char *path)
{
    static const char *const ends[] = {"/threading.py", "/concurrent/futures/thread.py", "/asyncio/events.py"};
    size_t length = strlen(path);
    bool any = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);
        any |= length >= end && strcmp(path + length - end, ends[i]) == 0;
    }
    return any;
}
