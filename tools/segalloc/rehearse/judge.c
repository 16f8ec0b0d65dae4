/* The outcome of a command's run, with its reason. */
#include "rehearse/rehearse.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "launch/own_runtime.h"
#include "rehearse/ends.h"
#include "signals.h"
#include "size.h"

/* How the command ended, as words: "it ended with status 1", "signal 11 ended it (Segmentation fault)". A shell says
   128 and the signal's number for what it ran. */
static const char *judge_end(const struct sg_rehearse_run *run, char ret[96])
{
    const char *name = run->status > 128 && run->status < 128 + 32 ? strsignal(run->status - 128) : NULL;
    if (name)
        snprintf(ret, 96, "signal %d ended it (%s)", run->status - 128, name);
    else
        snprintf(ret, 96, "it ended with status %d", run->status);
    return ret;
}

/* That it ended with an error gives no verdict. */
static void judge_stop(struct sg_rehearse *rehearse)
{
    const struct sg_rehearse_run *run = &rehearse->run;
    char end[96];
    rehearse->outcome = SG_REHEARSE_STOPPED;
    if (rehearse->cut && run->status == 0) {
        snprintf(rehearse->reason, sizeof rehearse->reason,
            "signal %d (%s) came while the run, which had ended, was played on other cards", sg_signals_first(),
            strsignal(sg_signals_first()));
        return;
    }
    if (rehearse->wait_cut && run->status == 0) {
        snprintf(rehearse->reason, sizeof rehearse->reason,
            "signal %d (%s) came while processes that CMD had left behind were waited for", sg_signals_first(),
            strsignal(sg_signals_first()));
        return;
    }
    snprintf(rehearse->reason, sizeof rehearse->reason, "%s after %" PRIu64 " event%s of memory%s%s%s",
        judge_end(run, end), rehearse->events, sg_plural(rehearse->events), *run->last_line ? ": " : "", run->last_line,
        rehearse->interrupted || rehearse->ooms /* a refused call is reason enough */
            ? ""
            : ". Where that came of a result: kernels compute nothing here, and a program that decides by what "
              "they compute (samples from probabilities, checks for NaN, loops until something converges) "
              "cannot be rehearsed as it is");
}

void sg_rehearse_judge(struct sg_rehearse *rehearse)
{
    const struct sg_rehearse_run *run = &rehearse->run;
    const struct sg_rehearse_card *largest = &rehearse->card[rehearse->card_count - 1];
    char end[96], size[SG_SIZE_TEXT], lack[SG_SIZE_TEXT];
    bool has_room = sg_rehearse_verdict(rehearse, largest) != SG_REHEARSE_DOES_NOT_FIT;
    rehearse->interrupted = sg_signals_first() || run->status == 128 + SIGINT || run->status == 128 + SIGTERM ||
                            run->status == 128 + SIGHUP;
    if (rehearse->processes == 0) {
        char program[SG_PLACE_BYTES];
        rehearse->outcome = SG_REHEARSE_STOPPED;
        if (run->status && sg_own_runtime_find(rehearse->command, program))
            snprintf(rehearse->reason, sizeof rehearse->reason, "%.300s " SG_OWN_RUNTIME_TEXT, program);
        else if (run->status)
            snprintf(rehearse->reason, sizeof rehearse->reason, "%s before it asked for device memory%s%s",
                judge_end(run, end), *run->last_line ? ": " : "", run->last_line);
        else
            snprintf(rehearse->reason, sizeof rehearse->reason,
                "it asked for no device memory; segalloc doctor --sim 24GiB -- CMD says why");
    } else if (run->status || rehearse->cut || rehearse->wait_cut) {
        judge_stop(rehearse);
    } else if (sg_ends_are_hidden(rehearse)) {
        unsigned stopped = rehearse->ends.stopped;
        rehearse->outcome = SG_REHEARSE_STOPPED;
        snprintf(rehearse->reason, sizeof rehearse->reason,
            "%u process%s that had asked for memory ended with an error, which CMD hides by its status 0%s%s", stopped,
            stopped == 1 ? "" : "es", *run->last_line ? ": " : "", run->last_line);
    } else if (!has_room && largest->asked) {
        snprintf(rehearse->reason, sizeof rehearse->reason, "it came to no good end on a card of %s%s%s",
            sg_size_format(largest->bytes, size), *largest->last_line ? ": " : "", largest->last_line);
    } else if (!has_room) {
        uint64_t short_by = sg_rehearse_short_by(rehearse, largest);
        rehearse->outcome = SG_REHEARSE_OUT_OF_MEMORY;
        snprintf(rehearse->reason, sizeof rehearse->reason, "a card of %s is full%s%s",
            sg_size_format(largest->bytes, size), short_by ? ", and short by " : "",
            short_by ? sg_size_format(short_by, lack) : "");
    } else {
        rehearse->outcome = SG_REHEARSE_COMPLETED;
        *rehearse->reason = '\0';
    }
}
