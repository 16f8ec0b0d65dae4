#include "rehearse/adapt.h"

#include <signal.h>
#include <string.h>

#include "rehearse/ends.h"
#include "rehearse/handlers.h"
#include "replay/smallest_card.h"

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
        if (!frame->native && *file)
            caught = is_between(file) ? sg_handler_ends_errors(file) : sg_handler_is_around(file, frame->line);
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

/* A cache above gives back and asks again, or the program asks for less, or elsewhere. A call that was served once the library
   had made room is no refusal: the program was not told. */
static bool made_refusals_good(const struct sg_rehearse *endless, const struct sg_rehearse *trial)
{
    return trial->retried > endless->retried;
}

/* True if the program took fewer bytes at a time because it adapts. Either it was refused, and then memory by other calls
   counts too, or it made other requests. With the same requests it is chance: threads come in another order, or frees take
   effect sooner. */
static bool has_asked_less(const struct sg_rehearse *endless, const struct sg_rehearse *trial)
{
    bool refused = made_refusals_good(endless, trial);
    bool same = trial->allocs == endless->allocs && trial->asked_bytes == endless->asked_bytes && !refused;
    return (refused && trial->peak_taken < endless->peak_taken) ||
           (!same && trial->peak_requested + trial->passed_on_bytes < endless->peak_requested);
}

bool sg_rehearse_may_take_less(const struct sg_rehearse *endless, const struct sg_rehearse *trial)
{
    return endless->questions || made_refusals_good(endless, trial);
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
