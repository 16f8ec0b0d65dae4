#include "tune/report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outside.h"
#include "plain_text.h"
#include "size.h"
#include "tool.h"
#include "tune/choice.h"
#include "tune/play.h"
#include "tune/search.h"
#include "tune/steady.h"

struct reason {
    const struct sg_tune_search *search;
    const struct sg_tune_candidate *best, *standard,
        *current; /* `current` is `standard` when it is the defaults or unknown */
    char *text;
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void reason_say(struct reason *reason, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(reason->text + reason->length, SG_TUNE_REASON - reason->length, format, arguments);
    va_end(arguments);
    reason->length += length > 0 ? (size_t)length : 0;
    if (reason->length >= SG_TUNE_REASON)
        reason->length = SG_TUNE_REASON - 1;
}

static double tune_percent(uint64_t part, uint64_t of)
{
    return of ? 100 * (double)part / (double)of : 0;
}

/* "1 allocation runs", "2 allocations run". */
static const char *run_out(uint64_t allocations, char text[64])
{
    snprintf(text, 64, "%" PRIu64 " allocation%s out of memory", allocations, allocations == 1 ? " runs" : "s run");
    return text;
}

static bool tune_within_noise(uint64_t a, uint64_t b)
{
    uint64_t difference = a > b ? a - b : b - a;
    return (double)difference <= SG_TUNE_NOISE * (double)(a < b ? a : b);
}

/* The cost of each key that is set now and would not be any more. */
static void say_unset(struct reason *reason)
{
    const struct sg_tune_space *space = reason->search->space;
    for (unsigned i = 0; i < space->parameters; i++) {
        char size[SG_SIZE_TEXT], text[64];
        const char *value[SG_TUNE_PARAMETERS];
        memcpy(value, space->now, sizeof value);
        if (!value[i] || reason->best->setting.value[i])
            continue;
        value[i] = NULL;
        const struct sg_tune_candidate *without = sg_tune_find(reason->search, value);
        if (!without || !reason->current->done)
            continue;
        if (without->ooms < reason->current->ooms)
            reason_say(reason, "Unset %s: because of it %s. ", space->parameter[i].key,
                run_out(reason->current->ooms - without->ooms, text));
        else if (without->ooms == reason->current->ooms && reason->current->reserved > without->reserved &&
                 !tune_within_noise(reason->current->reserved, without->reserved))
            reason_say(reason, "Unset %s: it costs you %s. ", space->parameter[i].key,
                sg_size_format(reason->current->reserved - without->reserved, size));
    }
}

/* A trace that no setting can fit on its card, or SIZE_MAX; and the device. */
static size_t too_large(const struct sg_tune_search *search, unsigned *ret_device)
{
    for (size_t i = 0; i < search->traces; i++) {
        for (unsigned device = 0; device < SEGALLOC_TRACE_DEVICES; device++) {
            uint64_t own = search->trace[i].card[device];
            *ret_device = device;
            if (search->trace[i].needed[device] > (search->limit || !own ? sg_tune_card(search, i) : own))
                return i;
        }
    }
    return SIZE_MAX;
}

/* The first allocation that fails under these settings. */
static void say_first_failure(struct reason *reason, const struct sg_tune_candidate *candidate)
{
    char asked[SG_SIZE_TEXT], live[SG_SIZE_TEXT], lack[SG_SIZE_TEXT];
    for (size_t i = 0; i < reason->search->traces; i++) {
        const struct sg_play_result *result = &candidate->result[i];
        if (!result->first_oom_event)
            continue;
        reason_say(reason, " The first is event %" PRIu64 " of %s: %s asked for with %s in use",
            result->first_oom_event, reason->search->trace[i].path, sg_size_format(result->first_oom_bytes, asked),
            sg_size_format(result->first_oom_live, live));
        if (result->first_oom_outside)
            reason_say(reason, " and %s held by other calls", sg_size_format(result->first_oom_outside, live));
        if (result->first_oom_short)
            reason_say(reason, ", short by %s", sg_size_format(result->first_oom_short, lack));
        reason_say(reason, ". `segalloc replay %s --min-limit` says how large a card it takes%s.",
            reason->search->trace[i].path, reason->search->trace[i].failures ? " at least" : "");
        return;
    }
}

static void say_out_of_memory(struct reason *reason)
{
    const struct sg_tune_search *search = reason->search;
    const struct sg_tune_candidate *least = search->candidate[sg_tune_best(search)];
    unsigned device;
    size_t trace = too_large(search, &device);
    char needed[SG_SIZE_TEXT], card[SG_SIZE_TEXT];
    if (trace != SIZE_MAX)
        reason_say(reason, "No setting makes this fit: %s needs %s at once and the card has %s. ",
            search->trace[trace].path, sg_size_format(search->trace[trace].needed[device], needed),
            sg_size_format(sg_tune_card(search, trace), card));
    else
        reason_say(reason, "Every setting that was tried runs out of memory. ");
    if (least->ooms == reason->standard->ooms)
        reason_say(reason, "None fails fewer allocations than the defaults: %" PRIu64 ".", reason->standard->ooms);
    else
        reason_say(reason, "The fewest allocations fail under %s: %" PRIu64 ", with the defaults it is %" PRIu64 ".",
            least->setting.conf, least->ooms, reason->standard->ooms);
    say_first_failure(reason, least->ooms == reason->standard->ooms ? reason->standard : least);
}

/* How little changing would gain. */
static void say_noise(struct reason *reason, const struct sg_tune_candidate *kept)
{
    const struct sg_tune_search *search = reason->search;
    uint64_t other = sg_tune_chosen_by(search, search->candidate[sg_tune_best(search)]).reserved;
    uint64_t mine = sg_tune_chosen_by(search, kept).reserved, saved = other < mine ? mine - other : 0;
    char size[SG_SIZE_TEXT];
    if (saved)
        reason_say(reason, "the best of the settings tried reserves %s (%.2f %%) less, and below %.1f %% is noise",
            sg_size_format(saved, size), tune_percent(saved, mine), SG_TUNE_NOISE * 100);
    else
        reason_say(reason, "no setting tried reserves less");
    reason_say(reason, "%s.", reason->search->traces > 1 ? " without reserving more on one of the traces" : "");
}

static void say_defaults(struct reason *reason)
{
    const struct sg_tune_candidate *current = reason->current;
    char text[64], size[SG_SIZE_TEXT];
    reason_say(reason, "Keep to the defaults: ");
    if (sg_tune_is_refuted(reason->search))
        reason_say(reason, "what is best on the first part is worse than they are on the rest.");
    else
        say_noise(reason, reason->standard);
    if (current == reason->standard || !current->done)
        return;
    if (current->ooms)
        reason_say(reason, " With what you have now %s.", run_out(current->ooms, text));
    else if (current->reserved > reason->standard->reserved &&
             !tune_within_noise(current->reserved, reason->standard->reserved))
        reason_say(reason, " What you have now reserves %s more.",
            sg_size_format(current->reserved - reason->standard->reserved, size));
    else
        reason_say(reason, " What you have now gains nothing.");
}

static void say_current(struct reason *reason)
{
    const struct sg_tune_candidate *current = reason->current, *standard = reason->standard;
    char text[64], size[SG_SIZE_TEXT];
    if (standard->ooms)
        reason_say(reason, "Keep what you have: with the defaults %s, and ", run_out(standard->ooms, text));
    else
        reason_say(reason, "Keep what you have: the defaults reserve %s (%.1f %%) more, and ",
            sg_size_format(standard->reserved - current->reserved, size),
            tune_percent(standard->reserved - current->reserved, current->reserved));
    say_noise(reason, current);
}

static void say_change(struct reason *reason)
{
    const struct sg_tune_candidate *best = reason->best, *standard = reason->standard, *current = reason->current;
    char text[64], size[SG_SIZE_TEXT], saved[SG_SIZE_TEXT];
    sg_size_format(best->reserved, size);
    if (standard->ooms)
        reason_say(reason, "It fits, in %s; with the defaults %s", size, run_out(standard->ooms, text));
    else
        reason_say(reason, "It reserves %s, which is %s (%.1f %%) less than the defaults", size,
            sg_size_format(standard->reserved - best->reserved, saved),
            tune_percent(standard->reserved - best->reserved, standard->reserved));
    if (current != standard && current->done && current->ooms)
        reason_say(reason, ", and with what you have %" PRIu64, current->ooms);
    else if (current != standard && current->done && current->reserved > best->reserved)
        reason_say(reason, "%s %s less than what you have", standard->ooms ? ", and it reserves" : " and",
            sg_size_format(current->reserved - best->reserved, saved));
    reason_say(reason, ". Driver calls: %" PRIu64 " (the defaults: %" PRIu64 ")", best->calls, standard->calls);
    if (best->pages_moved || standard->pages_moved)
        reason_say(reason, "; pages moved: %" PRIu64 " (%" PRIu64 ")", best->pages_moved, standard->pages_moved);
    reason_say(reason, ".");
}

/* The default slack tightens by itself on a card that fills up. */
static void print_slack(struct reason *reason)
{
    const struct sg_tune_search *search = reason->search;
    bool changes = false;
    if (search->space->policy != SG_POLICY_SEGALLOC || reason->best->setting.own.reserve_slack == 0 ||
        reason->standard->setting.own.reserve_slack != 0)
        return;
    for (size_t i = 0; i < search->traces; i++)
        changes = changes || (double)reason->standard->result[i].peak_reserved < 0.8 * (double)sg_tune_card(search, i);
    if (changes)
        reason_say(reason,
            " On a card that is nearly full the defaults do much of this by themselves: give yours with --limit.");
}

/* The traces on which the setting was chosen, and its effect on the rest. */
static void say_basis(struct reason *reason)
{
    const struct sg_tune_figures *best = &reason->best->rest, *standard = &reason->standard->rest;
    char size[SG_SIZE_TEXT], other[SG_SIZE_TEXT];
    if (reason->search->basis == SG_TUNE_RUNS_OUT)
        reason_say(reason, " Chosen on the whole: memory runs out in the later part.");
    if (reason->search->basis != SG_TUNE_FIRST_PARTS || reason->best == reason->standard)
        return;
    reason_say(reason, " Chosen on the first part; on the rest it reserves %s", sg_size_format(best->reserved, size));
    if (best->reserved == standard->reserved)
        reason_say(reason, ", as much as the defaults.");
    else
        reason_say(reason, ", %s (%.1f %%) %s than the defaults.",
            sg_size_format(best->reserved < standard->reserved ? standard->reserved - best->reserved
                                                               : best->reserved - standard->reserved,
                other),
            tune_percent(best->reserved < standard->reserved ? standard->reserved - best->reserved
                                                             : best->reserved - standard->reserved,
                standard->reserved),
            best->reserved < standard->reserved ? "less" : "more");
}

/* "7.00 of 8.00 GiB". */
static void say_part(struct reason *reason, uint64_t bytes, uint64_t of)
{
    char part[SG_SIZE_TEXT], whole[SG_SIZE_TEXT];
    sg_size_format(bytes, part);
    sg_size_format(of, whole);
    char *unit = strchr(part, ' '), *unit_of_whole = strchr(whole, ' ');
    if (unit && unit_of_whole && strcmp(unit, unit_of_whole) == 0)
        *unit = '\0';
    reason_say(reason, "%s of %s", part, whole);
}

/* Allocations that failed when they were recorded and are served here. */
static void reason_say_served(struct reason *reason, uint64_t failures)
{
    const struct sg_tune_search *search = reason->search;
    const char *it = failures == 1 ? "it" : "them";
    if (!reason->standard->ooms && search->traces == 1 && (search->limit || !search->trace[0].unknown_card)) {
        reason_say(reason, " It fits, ");
        say_part(reason, reason->best->reserved, sg_tune_card(search, 0));
        reason_say(reason, ":");
    }
    reason_say(reason,
        " %" PRIu64
        " allocation%s failed when this was recorded and %s served here; what would have come after %s is not "
        "known.",
        failures, sg_plural(failures), failures == 1 ? "is" : "are", it);
}

/* Calls that segalloc does not serve failed when it was recorded. */
static void say_refused_outside(struct reason *reason)
{
    const struct sg_tune_trace *largest = NULL;
    uint64_t failures = 0;
    char bytes[SG_SIZE_TEXT];
    for (size_t i = 0; i < reason->search->traces; i++) {
        const struct sg_tune_trace *trace = &reason->search->trace[i];
        failures += trace->failures_outside;
        if (trace->failures_outside && (!largest || trace->failed_outside_bytes > largest->failed_outside_bytes))
            largest = trace;
    }
    if (!largest)
        return;
    reason_say(reason,
        " %" PRIu64
        " call%s that segalloc does not serve failed when this was recorded, the largest of %s asked for %s: "
        "whether a setting leaves room for %s is not tried here.",
        failures, sg_plural(failures),
        largest->failed_outside_bytes ? sg_size_format(largest->failed_outside_bytes, bytes) : "unknown size",
        sg_outside_refused(largest->failed_outside_by), failures == 1 ? "it" : "them");
}

char *sg_tune_reason(const struct sg_tune_search *search, size_t recommended, char text[SG_TUNE_REASON])
{
    struct reason reason = {
        .search = search,
        .best = search->candidate[recommended],
        .standard = search->candidate[0],
        .current = search->candidate[search->current],
        .text = text,
    };
    *text = '\0';
    say_unset(&reason);
    if (sg_tune_chosen_by(search, search->candidate[sg_tune_best(search)]).ooms) {
        say_out_of_memory(&reason);
    } else if (reason.best == reason.standard) {
        say_defaults(&reason);
    } else if (reason.best == reason.current) {
        say_current(&reason);
    } else {
        say_change(&reason);
        print_slack(&reason);
    }
    say_basis(&reason);
    uint64_t failures = 0;
    for (size_t i = 0; i < search->traces; i++)
        failures += search->trace[i].failures;
    if (failures && !reason.best->ooms)
        reason_say_served(&reason, failures);
    say_refused_outside(&reason);
    return sg_plain_text(text); /* it has names of files */
}

static const char *tune_variable(const struct sg_tune_search *search)
{
    return search->space->policy == SG_POLICY_PYTORCH ? "PYTORCH_CUDA_ALLOC_CONF" : "SEGALLOC_CONF";
}

char *sg_tune_line(const struct sg_tune_search *search, size_t recommended)
{
    const char *conf = search->candidate[recommended]->setting.conf, *name = tune_variable(search);
    size_t room = strlen(conf) + strlen(name) + 16;
    char *line = calloc(1, room);
    bool plain = strspn(conf, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:,.=/%-") == strlen(conf);
    if (!line)
        exit(sg_tool_error("tune", "no host memory left"));
    if (*conf)
        snprintf(line, room, plain ? "%s=%s" : "%s='%s'", name, conf);
    else if (search->current)
        snprintf(line, room, "unset %s", name);
    return line;
}

static void tune_print_row(const struct sg_tune_search *search, const char *mark, const char *name, size_t index,
    int width)
{
    const struct sg_tune_candidate *candidate = search->candidate[index];
    char size[SG_SIZE_TEXT];
    const uint64_t live = candidate->requested; /* what failed when recorded, and is served here, included */
    printf("%-2s%-*s %12s", mark, width, name, sg_size_format(candidate->reserved, size));
    if (live)
        printf(" %8.3f x", (double)candidate->reserved / (double)live);
    else /* nothing but requests for 0 bytes */
        printf(" %8s  ", "-");
    printf(" %13" PRIu64, candidate->calls);
    if (search->space->policy == SG_POLICY_SEGALLOC)
        printf(" %12" PRIu64, candidate->pages_moved);
    if (candidate->ooms)
        printf("   %" PRIu64 " allocation%s", candidate->ooms, candidate->ooms == 1 ? " fails" : "s fail");
    putchar('\n');
}

static const char *or_defaults(const char *conf)
{
    return *conf ? conf : "(the defaults)";
}

/* The front by rising reserved memory. */
static void print_front(const struct sg_tune_search *search, size_t best, int width)
{
    const struct sg_tune_candidate *last = NULL;
    for (;;) {
        size_t found = SIZE_MAX;
        for (size_t i = 0; i < search->count; i++) {
            const struct sg_tune_candidate *candidate = search->candidate[i];
            bool follows = candidate->front && (!last || candidate->reserved > last->reserved);
            if (follows && (found == SIZE_MAX || candidate->reserved < search->candidate[found]->reserved))
                found = i;
        }
        if (found == SIZE_MAX)
            return;
        last = search->candidate[found];
        tune_print_row(search, found == best ? "*" : "", or_defaults(last->setting.conf), found, width);
    }
}

static void print_of_trace(const char *path, const char *what, const char *more)
{
    sg_tool_print_plain(path);
    printf("%s%s\n", what, more);
}

static void print_head(const struct sg_tune_search *search, double seconds)
{
    char card[SG_SIZE_TEXT];
    size_t tried = 0;
    uint64_t events = 0;
    for (size_t i = 0; i < search->count; i++)
        tried += search->candidate[i]->done;
    for (size_t i = 0; i < search->traces; i++)
        events += search->trace[i].events;
    printf("%zu setting%s tried by %s rules on %" PRIu64 " event%s in %.1f s", tried, sg_plural(tried),
        search->space->policy == SG_POLICY_PYTORCH ? "PyTorch's" : "segalloc's", events, sg_plural(events), seconds);
    if (search->limit || !search->trace[0].unknown_card)
        printf(", card of %s", sg_size_format(sg_tune_card(search, 0), card));
    putchar('\n');
    if (search->traces > 1)
        printf("figures are sums over %zu traces; nothing is recommended that is worse than the defaults on one of "
               "them\n",
            search->traces);
    for (size_t i = 0; i < search->traces; i++) {
        if (search->trace[i].end_text)
            print_of_trace(search->trace[i].path, " is incomplete: ", search->trace[i].end_text);
        if (search->trace[i].unknown_card && !search->limit)
            print_of_trace(search->trace[i].path, " names no card: the replay assumes one that is just full. ",
                "Add --limit 24GiB for one of yours");
    }
    uint64_t doubt = sg_tune_doubt(search);
    if (doubt)
        printf("the recorded run reserved %s more or less than its replay, which has no queued work;\n"
               "what gains less than that is no reason to change\n",
            sg_size_format(doubt, card));
    if (!search->complete)
        puts("the search was cut short: better settings may exist");
}

void sg_tune_print_text(const struct sg_tune_search *search, double seconds)
{
    size_t best = sg_tune_recommend(search);
    char reason[SG_TUNE_REASON], *line = sg_tune_line(search, best), reserved[SG_SIZE_TEXT], lagging[SG_SIZE_TEXT];
    int width = 16;
    for (size_t i = 0; i < search->count; i++) {
        const struct sg_tune_candidate *candidate = search->candidate[i];
        int length = (int)strlen(candidate->setting.conf);
        if ((candidate->front || i == search->current || i == best) && length > width)
            width = length < 90 ? length : 90;
    }
    print_head(search, seconds);
    printf("\n%-*s %12s %10s %13s%s\n", width + 2, "", "reserved", "of live", "driver calls",
        search->space->policy == SG_POLICY_SEGALLOC ? "  pages moved" : "");
    if (*search->candidate[0]->setting.conf)
        puts("the defaults of what is searched");
    tune_print_row(search, best == 0 ? "*" : "", or_defaults(search->candidate[0]->setting.conf), 0, width);
    if (search->current && search->candidate[search->current]->done) {
        puts("what you have");
        tune_print_row(search, best == search->current ? "*" : "", search->candidate[search->current]->setting.conf,
            search->current, width);
    }
    puts("Pareto front");
    print_front(search, best, width);
    if (best && best != search->current && !search->candidate[best]->front)
        tune_print_row(search, "*", search->candidate[best]->setting.conf, best, width);
    printf("\n%s\n", sg_tune_reason(search, best, reason));
    if (sg_tune_lag_decides(search, search->candidate[best]))
        printf("With it the lag of the GPU decides: %s where work is done at once, %s where it is up to 300 "
               "allocations "
               "behind.\n",
            sg_size_format(search->candidate[best]->reserved, reserved),
            sg_size_format(search->candidate[best]->lagging, lagging));
    if (*line)
        printf("\n    %s\n", line);
    free(line);
}
