/* One sentence that says how it went. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/findings.h"
#include "size.h"

/* Where utilization is called what: below 0.90 STAlloc's README speaks of severe fragmentation. */
#define UTILIZATION_SEVERE 0.90
#define UTILIZATION_GOOD 0.97
/* Up to which part of the card what is idle costs nothing: pages are moved only from there on (docs/design.md, "Growing"). */
#define FULL 0.8
/* This part of the card is not worth a word. */
enum { TRIFLE_PART = 100 };

static void say_ran_out(const struct sg_findings *findings, char *text, size_t size)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT];
    const struct sg_summary_failure *largest = NULL;
    uint64_t tried = findings->allocs + findings->passed_on + findings->ooms;
    for (uint32_t i = 0; i < findings->failures; i++)
        if (!largest || findings->failure[i].bytes > largest->bytes)
            largest = &findings->failure[i];
    size_t length = (size_t)snprintf(text, size, "Out of memory: %" PRIu64 " of %" PRIu64 " allocation%s failed",
        findings->ooms, tried, sg_plural(tried));
    if (largest)
        length += (size_t)snprintf(text + length, size - length, ", the largest of %s%s%s%s with %s in use%s%s",
            largest->bytes ? sg_size_format(largest->bytes, a) : "unknown size", largest->by ? " asked for " : "",
            largest->by ? sg_outside_refused(largest->by) : "", largest->by ? ", refused," : "",
            sg_size_format(largest->live_bytes, b), largest->short_by ? ", short by " : "",
            largest->short_by ? sg_size_format(largest->short_by, c) : "");
    else
        length += (size_t)snprintf(text + length, size - length, ", with at most %s requested at once",
            sg_size_format(findings->peak_requested, a));
    if (findings->survived)
        length += (size_t)snprintf(text + length, size - length, "; the program went on without %s",
            findings->ooms == 1 ? "it" : "them");
    if (findings->smallest_card)
        snprintf(text + length, size - length, ". A card of at least %s is needed%s.",
            sg_size_format(findings->smallest_card, a), findings->survived ? " for all of it" : "");
    else
        snprintf(text + length, size - length, ".");
}

/* A cache above asked, was refused, and has made up for it; or asked again in vain, which is one failure. */
static void say_refused(const struct sg_findings *findings, char *text, size_t size)
{
    size_t length = strlen(text);
    uint64_t good = findings->refused - findings->ooms;
    if (findings->ooms) {
        snprintf(text + length, size - length, " %" PRIu64 " calls for memory were refused in all.", findings->refused);
        return;
    }
    snprintf(text + length, size - length, " %" PRIu64 " call%s for memory %s refused and made good: nothing failed by %s.",
        good, sg_plural(good), good == 1 ? "was" : "were", good == 1 ? "it" : "them");
}

/* How well the memory that was held was used: what that cost, where it is known, is how much larger the smallest card
   is than what was asked for. */
static double use_of(const struct sg_findings *findings)
{
    uint64_t total = 0, least = 0;
    bool known = findings->smallest_card && findings->trace; /* of statistics it is a lower bound */
    uint64_t needed = findings->peak_taken > findings->peak_requested ? findings->peak_taken : findings->peak_requested;
    for (uint32_t i = 0; i < findings->devices; i++) {
        total += findings->device[i].total_bytes;
        least += findings->device[i].smallest_card;
    }
    if (known && least < needed + total / TRIFLE_PART)
        return 1;
    if (known)
        return (double)needed / (double)least;
    if ((double)findings->peak_reserved < FULL * (double)total)
        return 1;
    return findings->utilization;
}

static void verdict_say_served(const struct sg_findings *findings, char *text, size_t size)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT], c[SG_SIZE_TEXT];
    uint64_t asked = findings->allocs + findings->passed_on;
    uint64_t waste =
        findings->peak_reserved > findings->peak_allocated ? findings->peak_reserved - findings->peak_allocated : 0;
    double use = use_of(findings);
    bool ahead = findings->peak_pending > waste / 2 && findings->utilization < UTILIZATION_SEVERE;
    const char *word = ahead                       ? "Run ahead"
                       : use < UTILIZATION_SEVERE ? "Fragmented"
                       : use < UTILIZATION_GOOD   ? "Fair"
                                                  : "Good";
    size_t length = (size_t)snprintf(text, size, "%s: ", word);
    if (findings->smallest_card)
        length += (size_t)snprintf(text + length, size - length, "%s card is %s%s; ",
            findings->trace && findings->at_least ? "so far the smallest" : "the smallest",
            findings->trace ? "" : "at least ", sg_size_format(findings->smallest_card, a));
    length += (size_t)(asked == 1 ? snprintf(text + length, size - length, "the only allocation served")
                                  : snprintf(text + length, size - length, "all %" PRIu64 " allocations served", asked));
    length += (size_t)snprintf(text + length, size - length, ", %s reserved at the peak for %s allocated",
        sg_size_format(findings->peak_reserved, a), sg_size_format(findings->peak_allocated, b));
    if (ahead)
        snprintf(text + length, size - length, ", because up to %s were freed while queued work still used them.",
            sg_size_format(findings->peak_pending, c));
    else
        snprintf(text + length, size - length, ", utilization %.1f %%.", findings->utilization * 100);
}

/* The cards that a rehearsal was asked about: the card without end, on which it ran, is nobody's. */
static void say_rehearsed(const struct sg_findings *findings, char *text, size_t size)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    uint64_t least = findings->smallest_card;
    size_t length = (size_t)snprintf(text, size, "Rehearsed: ");
    for (uint32_t i = 0; i < findings->cards && length < size; i++) {
        const struct sg_summary_card *card = &findings->card[i];
        uint64_t spare = card->bytes > least ? card->bytes - least : 0;
        const char *word = card->bytes < least ? "does not fit" : spare < card->margin ? "too close to call" : "fits";
        length += (size_t)snprintf(text + length, size - length, "%s%s %s, %s %s", i ? "; " : "", sg_size_format(card->bytes, a),
            word, sg_size_format(card->bytes < least ? least - card->bytes : spare, b), card->bytes < least ? "more" : "to spare");
    }
    if (length < size)
        snprintf(text + length, size - length, ". The smallest card is %s%s.", findings->at_least ? "at least " : "",
            sg_size_format(least, a));
}

char *sg_findings_verdict(const struct sg_findings *findings, char *text, size_t size)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    uint64_t asked = findings->allocs + findings->passed_on;
    if (findings->passed_on && !findings->allocs)
        snprintf(text, size,
            asked == 1 ? "Not served: the only allocation went to the driver, not to segalloc."
                       : "Not served: all %" PRIu64 " allocations went to the driver, none to segalloc.",
            asked);
    else if (findings->ooms)
        say_ran_out(findings, text, size);
    else if (findings->cards && findings->smallest_card)
        say_rehearsed(findings, text, size);
    else if (findings->passed_on)
        snprintf(text, size,
            "Partly served: %" PRIu64 " of %" PRIu64 " allocation%s (%s) went to the driver, not to segalloc.",
            findings->passed_on, asked, sg_plural(asked), sg_size_format(findings->passed_on_bytes, a));
    else if (!findings->knows_reserved)
        snprintf(text, size,
            "Peak use is %s%s. This file has no allocator statistics; `segalloc replay %s` computes them.",
            findings->at_least ? "at least " : "", sg_size_format(findings->peak_requested, a), findings->path);
    else if (findings->imported)
        snprintf(text,
            size, "%s were asked for at the peak%s, and PyTorch held %s. `segalloc replay %s --min-limit` finds the smallest card.",
            sg_size_format(findings->peak_requested, a), findings->at_least ? ", as far as is known" : "",
            sg_size_format(findings->peak_reserved, b), findings->path);
    else if (findings->utilization < 0)
        snprintf(text, size, "Nothing was held: %" PRIu64 " allocation%s, and no memory reserved.", findings->allocs,
            sg_plural(findings->allocs));
    else
        verdict_say_served(findings, text, size);
    if (findings->refused > findings->ooms)
        say_refused(findings, text, size);
    bool ran;
    uint64_t found = sg_findings_checked_all(findings, &ran);
    size_t length = strlen(text);
    if (found)
        snprintf(text + length, size - length, " The run checked itself, with %" PRIu64 " finding%s.", found,
            sg_plural(found));
    return text;
}
