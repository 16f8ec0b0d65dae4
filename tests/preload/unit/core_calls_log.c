/* See core_calls_log.h. */
#include "core_calls_log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT_LINES = 6 };

bool read_log(const char *path, struct log *ret)
{
    FILE *file = fopen(path, "r");
    size_t got = 1;
    for (; file && got > 0; ret->length += got) {
        ret->text = realloc(ret->text, ret->length + (1 << 16));
        assert(ret->text);
        got = fread(ret->text + ret->length, 1, 1 << 16, file);
    }
    if (file)
        fclose(file);
    return file && ret->length;
}

bool write_log(const char *path, const struct log *log)
{
    FILE *file = fopen(path, "w");
    size_t written = file ? fwrite(log->text, 1, log->length, file) : 0;
    return file && fclose(file) == 0 && written == log->length;
}

struct line {
    const char *text;
    size_t length;
};

/* The line that begins at `at`, without its end. */
static struct line line_at(const struct log *log, size_t at)
{
    const char *end = memchr(log->text + at, '\n', log->length - at);
    return (struct line){log->text + at, end ? (size_t)(end - log->text) - at : log->length - at};
}

/* Prints a step, with what is not in `other` between arrows: from the first word that differs to the last. */
static void print_changed(char sign, struct line line, struct line other)
{
    size_t from = 0, shorter = line.length < other.length ? line.length : other.length, after = 0;
    while (from < shorter && line.text[from] == other.text[from])
        from++;
    while (after < shorter - from && line.text[line.length - 1 - after] == other.text[other.length - 1 - after])
        after++;
    while (from && line.text[from - 1] != ' ')
        from--;
    while (after && line.text[line.length - after] != ' ')
        after--;
    fprintf(stderr, "%c %.*s>>>%.*s<<<%.*s\n", sign, (int)from, line.text, (int)(line.length - after - from),
        line.text + from, (int)after, line.text + line.length - after);
}

/* The log in lines; the caller frees them. */
static struct line *lines_of(const struct log *log, int *ret_count)
{
    struct line *ret = calloc(log->length + 1, sizeof *ret);
    assert(ret);
    *ret_count = 0;
    for (size_t at = 0; at < log->length; at += ret[(*ret_count)++].length + 1)
        ret[*ret_count] = line_at(log, at);
    return ret;
}

static bool is_same(struct line line, struct line other)
{
    return line.length == other.length && memcmp(line.text, other.text, line.length) == 0;
}

/* How many lines of `list` before `found` equal `line`, up to a bound; the bound where none does. */
static int distance(const struct line *list, int at, int count, struct line line)
{
    enum { AHEAD = 40 };
    int ret = 0;
    while (ret < AHEAD && at + ret < count && !is_same(list[at + ret], line))
        ret++;
    return at + ret < count ? ret : AHEAD;
}

/* Prints the program and the lines before one that differs, but for what was printed: all up to `shown`. */
static void print_before(const struct line *list, int at, int lines, int shown)
{
    int program = at;
    while (program > 0 && strncmp(list[program].text, "program ", 8) != 0)
        program--;
    if (program >= shown && program < at)
        fprintf(stderr, "%.*s\n", (int)list[program].length, list[program].text);
    for (int i = at > program + lines ? at - lines : program + 1; i < at; i++)
        fprintf(stderr, "  %.*s\n", (int)list[i].length, list[i].text);
}

int compare_logs(const struct log *wanted, const struct log *got, bool all)
{
    int old_count, new_count, differ = 0, shown = 0, i = 0, j = 0;
    struct line *was = lines_of(wanted, &old_count), *is = lines_of(got, &new_count), none = {"", 0};
    while (i < old_count || j < new_count) {
        if (i < old_count && j < new_count && is_same(was[i], is[j])) {
            i++, j++;
            continue;
        }
        int gone = j < new_count ? distance(was, i, old_count, is[j]) : old_count;
        int added = i < old_count ? distance(is, j, new_count, was[i]) : new_count;
        bool takes = i < old_count && gone <= added, adds = j < new_count && added <= gone;
        if (all || differ == 0) {
            print_before(is, j, all ? 0 : CONTEXT_LINES, shown);
            shown = j;
            if (takes)
                print_changed('-', was[i], adds ? is[j] : none);
            if (adds)
                print_changed('+', is[j], takes ? was[i] : none);
        }
        differ++;
        i += takes, j += adds;
    }
    free(was);
    free(is);
    return differ;
}
