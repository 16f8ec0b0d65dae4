#include "rehearse/true_size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config.h"
#include "effective_conf.h"
#include "rehearse/adapt.h"
#include "rehearse/ends.h"
#include "replay/smallest_card.h"
#include "size.h"
#include "tool.h"

struct true_size {
    struct sg_rehearse *rehearse;
    struct sg_launch *launch;
    sg_rehearse_once_fn *once;
    struct sg_rehearse *trial; /* the last run */
};

void sg_rehearse_sim_text(char *text, size_t size, uint64_t bytes, int devices, const char *name,
    enum sg_rehearse_pace pace, const char *shared)
{
    static const char *const paces[] = {[SG_REHEARSE_ENDLESS] = ",at-once",
        [SG_REHEARSE_AS_IS] = "",
        [SG_REHEARSE_SOONEST] = ",at-once",
        [SG_REHEARSE_BETWEEN] = ",run_ahead=0",
        [SG_REHEARSE_LATEST] = ",run_ahead=1000"};
    snprintf(text, size, "%" PRIu64 ",count=%d%s,drop_mb=1%s%s%s%s", bytes, devices, paces[pace], name ? ",model=" : "",
        name ? name : "", shared ? ",card=" : "", shared ? shared : "");
}

/* Where one of several processes fails for want of memory, the others may wait for it for ever. A run that takes so
   much longer than the one on a card without end is ended. */
static double rehearse_longest_run(const struct sg_rehearse *rehearse)
{
    return rehearse->processes > 1 ? 10 + 10 * rehearse->run.seconds : 0;
}

/* Runs the command anew on the machine `sim`, into `at->trial`; `card` is the one that is named. 0, or an exit status after a
   line on stderr. */
static int run_trial(struct true_size *at, const struct sg_rehearse_card *card, const char *sim, bool true_size)
{
    struct sg_rehearse *rehearse = at->rehearse, *trial = at->trial;
    *trial = (struct sg_rehearse){.verb = rehearse->verb,
        .json = rehearse->json,
        .margin = rehearse->margin,
        .devices = rehearse->devices,
        .command = rehearse->command,
        .signals = rehearse->signals,
        .overwrite = rehearse->overwrite,
        .trackers = rehearse->trackers,
        .overflow = rehearse->overflow,
        .card_count = 1,
        .card[0] = {.bytes = card->bytes, .name = card->name, .margin = card->margin},
        .true_size = true_size,
        .steps = rehearse->steps,
        .steady = rehearse->steady,
        .most_seconds = rehearse_longest_run(rehearse)};
    const char *conf = at->launch->conf, *endless = at->launch->sim;
    at->launch->sim = sim;
    at->launch->conf = sg_tool_conf_join("oom_report:never", conf);
    int status = at->once(trial, at->launch, false);
    if (trial->run.too_long)
        fprintf(stderr,
            "segalloc rehearse: it was ended after %.0f s, for it took %.0f s before: it came to no end there.\n",
            trial->run.seconds, rehearse->run.seconds);
    at->launch->conf = conf;
    at->launch->sim = endless;
    rehearse->interrupted |= trial->interrupted;
    rehearse->cut |= trial->interrupted;
    return status;
}

/* Runs the command on a card of its true size; `why`, for the line on stderr, NULL: that was said. 0, or an exit status
   after a line on stderr. */
static int run_on(struct true_size *at, const struct sg_rehearse_card *card, const char *why, enum sg_rehearse_pace pace)
{
    const struct sg_rehearse *rehearse = at->rehearse;
    char sim[256], size[SG_SIZE_TEXT], shared[32], path[SIM_CARD_PATH];
    snprintf(shared, sizeof shared, "rehearse-%ld", (long)getpid());
    sg_rehearse_sim_text(sim, sizeof sim, card->bytes, rehearse->devices, card->name, pace,
        rehearse->processes > 1 ? shared : NULL);
    if (why)
        fprintf(stderr, "segalloc rehearse: %s %s. Running it once more, on a card of that size.\n",
            sg_size_format(card->bytes, size), why);
    int status = run_trial(at, card, sim, /* true_size */ true);
    sim_config_card_path(shared, path);
    unlink(path); /* where processes were killed */
    return status;
}

/* Finds the most that the program holds if the GPU lags. It may make a card tight, because on the card without end work was
   done where it was submitted.

   An example. A pool's 24 MiB are freed, and then its threshold is raised. A GPU that keeps up has given them back by then. With
   one that lags they stay in the pool, and there are 24 MiB more at the peak. */
static int learn_late_peak(struct true_size *at)
{
    struct sg_rehearse *rehearse = at->rehearse;
    bool roomy = false;
    for (unsigned i = 0; i < rehearse->card_count; i++)
        roomy |= rehearse->card[i].fits && !rehearse->card[i].open &&
                 !sg_rehearse_is_tight(rehearse, &rehearse->card[i]);
    if (!rehearse->lags || !roomy || rehearse->interrupted)
        return 0;
    char sim[256];
    const struct sg_rehearse_card *largest = &rehearse->card[rehearse->card_count - 1];
    sg_rehearse_sim_text(sim, sizeof sim, rehearse->endless_bytes, rehearse->devices, largest->name, SG_REHEARSE_LATEST,
        NULL);
    fputs("segalloc rehearse: what it holds depends on how far the GPU has come. Running it once more, with one that "
          "lags.\n",
        stderr);
    int status = run_trial(at, largest, sim, /* true_size */ false);
    rehearse->peak_late = at->trial->peak_taken;
    return status;
}

/* Runs it there with a GPU that lags as little as one may, somewhat, and as much: lag makes one run a matter of luck. Each
   run has to come to its end.

   An example. A card of 42 MiB has 24 pages of ours and of managed memory, which comes to the device with the work.
   Where that comes soon, ours are moved to make room, and fail. Where it comes late they fit.

   Another one. A pool's memory is freed, and then its threshold is raised. Where the GPU keeps up it has left before that. Where it
   comes to the free at the next allocation, it stays in the pool and the last call fails. Where it comes to it at the
   host's wait, which that call makes, it leaves. */
static int run_at_each_pace(struct true_size *at, const struct sg_rehearse_card *card, const char *why,
    bool *ret_ends_well)
{
    static const enum sg_rehearse_pace paces[] = {SG_REHEARSE_SOONEST, SG_REHEARSE_BETWEEN, SG_REHEARSE_LATEST};
    int status = 0;
    *ret_ends_well = true;
    for (size_t i = 0; i < sizeof paces / sizeof *paces && status == 0 && *ret_ends_well; i++) {
        status = run_on(at, card, i == 0 ? why : NULL, paces[i]);
        *ret_ends_well = status == 0 && sg_rehearse_has_ended_well(at->rehearse, at->trial);
    }
    return status;
}

/* True if it fits all cards that are larger than this one. */
static bool fits_larger(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    bool all = true;
    for (const struct sg_rehearse_card *larger = card + 1; larger < rehearse->card + rehearse->card_count; larger++)
        all &= larger->fits;
    return all;
}

/* A card that it does not fit as it ran. */
static int try_failing(struct true_size *at, struct sg_rehearse_card *card)
{
    struct sg_rehearse *rehearse = at->rehearse, *trial = at->trial;
    int status = run_on(at, card,
        rehearse->together > 1 && !card->ends_at_event
            ? "is too small if all processes have their peaks at once; they may take turns"
            : "does not fit as it ran on a card without end; it may make do with less",
        SG_REHEARSE_AS_IS);
    if (status)
        return status;
    uint64_t took = trial->alone.segalloc ? trial->alone.segalloc : trial->peak_requested;
    card->adapted = sg_rehearse_has_adapted(rehearse, trial);
    card->ran = card->adapted || (rehearse->together <= 1 && sg_rehearse_has_ended_well(rehearse, trial));
    card->turns = !card->ran && sg_rehearse_took_turns(rehearse, card, trial);
    card->ran_smallest = took < card->bytes ? took : card->bytes;
    card->adapted_refused = trial->refused;
    card->adapted_ooms = trial->ooms;
    rehearse->adapts |= card->adapted;
    if ((card->ran || card->turns) && !card->adapted && (rehearse->lags || trial->lags)) {
        bool ends_well;
        status = run_at_each_pace(at, card, NULL, &ends_well);
        card->ran &= ends_well;
        card->turns &= ends_well;
    }
    card->fits |= card->ran || card->turns;
    if (card->ran && rehearse->alone.segalloc > card->bytes && fits_larger(rehearse, card))
        rehearse->alone.segalloc = card->bytes;
    return status;
}

/* Cards that are all but full by memory of other calls or processes, smallest first. Where it runs out, the next page
   is tried. */
static int try_tight(struct true_size *at, void (*judge)(struct sg_rehearse *rehearse))
{
    static const char why[] = "is all but full, partly by other processes or by memory that segalloc does not serve";
    struct sg_rehearse *rehearse = at->rehearse;
    int status = 0;
    for (unsigned i = 0; status == 0 && i < rehearse->card_count; i++) {
        struct sg_rehearse_card *card = &rehearse->card[i];
        bool ends_well;
        if (!sg_rehearse_is_tight(rehearse, card))
            continue;
        if (rehearse->lags) {
            status = run_at_each_pace(at, card, why, &ends_well);
        } else {
            status = run_on(at, card, why, SG_REHEARSE_AS_IS);
            ends_well = status == 0 && sg_rehearse_has_ended_well(rehearse, at->trial);
        }
        card->tried = ends_well;
        if (status || rehearse->interrupted || ends_well)
            continue;
        card->fits = false;
        card->ran_out = true;
        if (rehearse->alone.segalloc < card->bytes + SG_SMALLEST_STEP)
            rehearse->alone.segalloc = card->bytes + SG_SMALLEST_STEP;
        judge(rehearse);
    }
    return status;
}

/* A run that stopped beyond the cards named is made on each of them, largest first, up to one that is too small. If the
   largest gives no answer either, the run has stopped for another reason. */
static int try_stopped(struct true_size *at)
{
    struct sg_rehearse *rehearse = at->rehearse, *trial = at->trial;
    int status = 0;
    bool fits = true;
    for (unsigned i = rehearse->card_count; status == 0 && i-- > 0;) {
        struct sg_rehearse_card *card = &rehearse->card[i];
        if (!fits) {
            card->fits = false;
            continue;
        }
        status = run_on(at, card, "may be where it ends otherwise than on a card without end, on which it stopped",
            SG_REHEARSE_AS_IS);
        bool stopped = trial->run.status || sg_ends_are_hidden(trial);
        if (status || rehearse->interrupted || (stopped && !trial->refused))
            break;
        rehearse->beyond = true;
        fits = card->fits = card->ran = sg_rehearse_has_ended_well(rehearse, trial);
        card->adapted = fits && (trial->retried || trial->ooms || trial->questions);
        card->ran_out = !fits;
        card->ran_smallest = trial->alone.segalloc < card->bytes ? trial->alone.segalloc : card->bytes;
        card->adapted_refused = trial->refused;
        card->adapted_ooms = trial->ooms;
        rehearse->adapts |= card->adapted;
        if (!fits) /* the run that stopped may have held what none on a card would */
            rehearse->alone.segalloc = card->bytes + SG_SMALLEST_STEP;
        rehearse->alone.pytorch = rehearse->alone.pytorch_expandable = 0;
    }
    if (rehearse->beyond) { /* what it stopped for it does not come to there */
        rehearse->run.status = 0;
        rehearse->ends.stopped = 0;
    }
    return status;
}

/* True if the program gets other answers on this card, which it fits by a replay, than it got in its first run. The
   library answered that run with the size of the largest card. NVML, and a driver without the library, answered with
   that of the machine. */
static bool is_told_otherwise(const struct sg_rehearse *rehearse, unsigned i)
{
    const struct sg_rehearse_card *card = &rehearse->card[i];
    bool told = i + 1 == rehearse->card_count && !rehearse->asks_machine;
    return rehearse->asks && !told && card->fits && !card->open && !card->ran && !card->turns;
}

/* The run on a card of its true size holds, whatever a replay says. */
static void note_asked(struct sg_rehearse *rehearse, const struct sg_rehearse *trial, struct sg_rehearse_card *card)
{
    uint64_t took = trial->alone.segalloc ? trial->alone.segalloc : trial->peak_requested;
    bool same = trial->allocs == rehearse->allocs && trial->asked_bytes == rehearse->asked_bytes;
    card->asked = true;
    card->fits = sg_rehearse_has_ended_well(rehearse, trial);
    card->ran = card->fits;
    card->ran_out = !card->fits;
    card->ran_smallest = took < card->bytes ? took : card->bytes;
    rehearse->differs |= !same || !card->fits;
    if (card->ran_out)
        snprintf(card->last_line, sizeof card->last_line, "%s", trial->run.last_line);
}

/* A program that asks how much memory the card has may do anything by the answer, and a replay of one run has one
   answer. So it runs once on each named card that it fits by the replay, and was not told of.

   An example. It needs 300 MiB where there are 4 GiB, and else 700 for another way of computing. The replay of its run
   for 8 GiB says that it fits both 8 GiB and 600 MiB. On 600 MiB it runs out. */
static int try_asked(struct true_size *at)
{
    struct sg_rehearse *rehearse = at->rehearse;
    int status = 0;
    for (unsigned i = rehearse->card_count; status == 0 && i-- > 0;) {
        struct sg_rehearse_card *card = &rehearse->card[i];
        if (!is_told_otherwise(rehearse, i))
            continue;
        if (rehearse->interrupted) {
            card->open = true;
            continue;
        }
        status = card->tried
            ? 0
            : run_on(at, card, "has room for what it took, but it asks how much memory there is", SG_REHEARSE_AS_IS);
        if (status == 0 && rehearse->interrupted)
            card->open = true;
        else if (status == 0 && !card->tried)
            note_asked(rehearse, at->trial, card);
    }
    return status;
}

/* Cards that are too small, the largest first, with part of the memory elsewhere. Context and libraries take their margin of a
   card, so a card without that is run on. Where one is too small even so, smaller ones are. */
static int try_overflow(struct true_size *at)
{
    struct sg_rehearse *rehearse = at->rehearse;
    const char *conf = at->launch->conf;
    int status = 0;
    at->launch->conf = sg_tool_conf_join(conf, rehearse->overflow);
    for (unsigned i = rehearse->card_count; status == 0 && !rehearse->interrupted && i-- > 0;) {
        struct sg_rehearse_card *card = &rehearse->card[i], rest = *card;
        if (card->fits || card->open)
            continue;
        rest.bytes -= card->margin < card->bytes / 2 ? card->margin : 0;
        status = run_on(at, &rest, "may do with part of the memory elsewhere", SG_REHEARSE_AS_IS);
        if (status || rehearse->interrupted || at->trial->ooms || !sg_rehearse_has_ended_well(rehearse, at->trial))
            break;
        card->overflow = at->trial->far;
    }
    at->launch->conf = conf;
    return status;
}

/* Cards that it does not fit as it ran. Where one proves too small, smaller ones are, unless a program is uneven or takes less
   there. */
int sg_rehearse_true_sizes(struct sg_rehearse *rehearse, struct sg_launch *launch, sg_rehearse_once_fn *once,
    void (*judge)(struct sg_rehearse *rehearse))
{
    struct true_size at = {rehearse, launch, once, malloc(sizeof *at.trial)};
    if (!at.trial)
        return sg_tool_error(rehearse->verb, "no host memory left");
    rehearse->first_smallest = rehearse->alone.segalloc;
    bool ran_out = rehearse->run.status != 0, beyond = sg_rehearse_stopped_beyond(rehearse);
    int status = beyond || ran_out ? 0 : learn_late_peak(&at);
    bool uneven = sg_rehearse_is_uneven(rehearse);
    status = status ? status : beyond ? try_stopped(&at) : ran_out ? 0 : try_tight(&at, judge);
    for (unsigned i = rehearse->card_count; status == 0 && !beyond && i-- > 0;) {
        struct sg_rehearse_card *card = &rehearse->card[i];
        card->fits &= !(ran_out && rehearse->ooms);
        if (card->ran_out && !uneven)
            break;
        if (card->ran_out || !sg_rehearse_may_adapt(rehearse, card))
            continue;
        status = try_failing(&at, card);
        if (!card->fits && !uneven && !sg_rehearse_may_take_less(rehearse, at.trial))
            break;
    }
    if (status == 0 && !beyond && !ran_out && !sg_ends_are_hidden(rehearse) && rehearse->processes)
        status = try_asked(&at);
    if (status == 0 && rehearse->overflow && !beyond && !ran_out && !sg_ends_are_hidden(rehearse) && rehearse->processes)
        status = try_overflow(&at);
    free(at.trial);
    if (status == 0 && rehearse->adapts && ran_out) /* it stopped for want of an end */
        rehearse->run.status = 0;
    if (status == 0)
        judge(rehearse);
    return status;
}
