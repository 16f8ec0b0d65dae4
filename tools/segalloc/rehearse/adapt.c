#include "rehearse/adapt.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rehearse/ends.h"
#include "replay/smallest_card.h"

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

/* True if running out of memory is among the errors that "except …:" names. PyTorch's error is a RuntimeError. */
static bool takes_running_out(const char *line)
{
    static const char *const names[] = {"OutOfMemory", "RuntimeError", "Exception", "MemoryError", "OOM"};
    const char *rest = line + strspn(line, " \t") + strlen("except");
    if (rest[strspn(rest, " \t")] == ':')
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(rest, names[i]))
            return true;
    return false;
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
        if (takes_running_out(source->line[i]))
            return true;
    }
    return false;
}

/* Goes outward from the line, to the function that it is in. */
static bool is_handled(const struct source *source, uint64_t line)
{
    if (line == 0 || line > source->lines)
        return false;
    int indent = indent_of(source->line[line - 1]);
    for (uint64_t at = line - 1; at-- > 0 && indent > 0;) {
        int own = indent_of(source->line[at]);
        if (own < 0 || own >= indent)
            continue;
        if (line_begins_with(source->line[at], "try:") && has_handler(source, at))
            return true;
        if (line_begins_with(source->line[at], "def ") || line_begins_with(source->line[at], "async def "))
            return false;
        indent = own;
    }
    return false;
}

/* PyTorch's own handlers, and those of Python's library, raise what they have caught again. */
static bool is_between(const char *file)
{
    return sg_site_rank(file) >= SG_SITE_FRAMEWORK;
}

bool sg_rehearse_is_caught(const struct sg_site_book *book, uint32_t site)
{
    const struct sg_site_info *info = site && site < book->sites ? &book->site[site] : NULL;
    bool caught = false;
    for (uint32_t i = 0; info && i < info->frames && !caught; i++) {
        const struct sg_site_frame *frame = &info->frame[i];
        const char *file = sg_site_book_text(book, frame->file);
        struct source source;
        if (frame->native || !*file || is_between(file))
            continue;
        caught = read_source(file, &source) && is_handled(&source, frame->line);
        free_source(&source);
    }
    return caught;
}

/* True if each process that was there fits the card, but not those that were there at once. */
static bool fit_alone(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    return rehearse->together > 1 && !card->ends_at_event;
}

bool sg_rehearse_stopped_beyond(const struct sg_rehearse *rehearse)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP};
    bool beyond = rehearse->peak_taken > rehearse->card[rehearse->card_count - 1].bytes;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        beyond |= rehearse->run.status == 128 + faults[i];
    bool stopped = rehearse->run.status != 0 || sg_ends_are_hidden(rehearse);
    return beyond && stopped && rehearse->processes && !rehearse->interrupted && !rehearse->ooms;
}

bool sg_rehearse_may_adapt(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    if (card->fits || card->open || rehearse->interrupted || !rehearse->processes)
        return false;
    if (rehearse->run.status != 0)
        return rehearse->ooms > 0;
    return fit_alone(rehearse, card) || !rehearse->torch || rehearse->beneath || card->caught || rehearse->questions ||
           rehearse->ooms || rehearse->children;
}

bool sg_rehearse_has_ended_well(const struct sg_rehearse *endless, const struct sg_rehearse *trial)
{
    return trial->run.status == 0 && trial->processes && !trial->interrupted && sg_ends_are_good(endless, trial);
}

/* True if the program asked for fewer bytes at a time because it adapts. Either it was refused, as a cache above gives
   back and asks again, or it made other requests. A call that was served once the library had made room is no
   refusal: the program was not told. With the same requests it is chance: threads come in another order, or frees take
   effect sooner. */
static bool has_asked_less(const struct sg_rehearse *endless, const struct sg_rehearse *trial)
{
    bool same = trial->allocs == endless->allocs && trial->asked_bytes == endless->asked_bytes &&
                trial->retried <= endless->retried;
    return !same && trial->peak_requested + trial->passed_on_bytes < endless->peak_requested;
}

bool sg_rehearse_has_adapted(const struct sg_rehearse *endless, const struct sg_rehearse *trial)
{
    if (trial->processes < endless->processes && !sg_ends_search(endless, trial)) /* one has ended before it got any */
        return false;
    bool asks = endless->questions || trial->questions, does_without = endless->ooms || trial->ooms;
    return sg_rehearse_has_ended_well(endless, trial) && (asks || does_without || has_asked_less(endless, trial));
}

bool sg_rehearse_took_turns(const struct sg_rehearse *endless, const struct sg_rehearse_card *card,
    const struct sg_rehearse *trial)
{
    bool good = sg_rehearse_has_ended_well(endless, trial) && !trial->ooms && trial->processes == endless->processes &&
                trial->unseen_bytes >= endless->unseen_bytes;
    uint64_t leaving = endless->outside.bytes[SEGALLOC_OUTSIDE_POOLS_LEAVING]; /* may have left sooner there */
    return good && trial->peak_own + leaving >= endless->peak_own && fit_alone(endless, card);
}

bool sg_rehearse_has_strangers(const struct sg_rehearse *rehearse)
{
    return rehearse->unseen && rehearse->together > 1;
}

/* The most of the smallest card and of what was taken at the peak, some of which leaves where room is short. */
static uint64_t rehearse_most_taken(const struct sg_rehearse *rehearse)
{
    uint64_t taken = rehearse->peak_late > rehearse->peak_taken ? rehearse->peak_late : rehearse->peak_taken;
    return rehearse->alone.segalloc > taken ? rehearse->alone.segalloc : taken;
}

bool sg_rehearse_is_uneven(const struct sg_rehearse *rehearse)
{
    return sg_rehearse_has_strangers(rehearse) || rehearse->alone.segalloc < rehearse_most_taken(rehearse);
}

bool sg_rehearse_is_tight(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    enum { TIGHT_PAGES = 4 };
    uint64_t tight = TIGHT_PAGES * SG_SMALLEST_STEP + (sg_rehearse_has_strangers(rehearse) ? rehearse->asked_bytes : 0);
    uint64_t smallest = rehearse->alone.segalloc, end = rehearse_most_taken(rehearse) + tight;
    bool fits = card->fits && !card->open && !rehearse->interrupted && rehearse->processes;
    bool shared = rehearse->together > 1 || sg_outside_sum(&rehearse->outside);
    return fits && shared && smallest + card->margin < end && card->bytes < end;
}
