/* The answer of `segalloc replay`, as text. */
#include "replay/replayed.h"

#include <inttypes.h>
#include <stdio.h>

#include "size.h"

bool sg_replayed_is_lower_bound(const struct sg_replayed *replay)
{
    return replay->result.failures > 0 || sg_trace_info(replay->reader)->end_text;
}

uint64_t sg_replayed_largest_card(const struct sg_replayed *replay)
{
    uint64_t largest = 0;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        if (replay->result.device[i].used && replay->result.device[i].card_bytes > largest)
            largest = replay->result.device[i].card_bytes;
    return largest ? largest : replay->limit;
}

const char *sg_replayed_conf(const struct sg_replayed *replay, char *text, size_t size)
{
    if (replay->conf_text)
        return replay->conf_text;
    if (replay->play.policy == SG_POLICY_SEGALLOC)
        sg_recorded_conf_text(&replay->recorded.conf, text, size);
    else
        *text = '\0';
    return text;
}

static void replay_print_row(const char *name, uint64_t bytes, uint64_t of)
{
    char text[SG_SIZE_TEXT];
    printf("  %-16s %12s", name, sg_size_format(bytes, text));
    if (of)
        printf("   %.4f x", (double)bytes / (double)of);
    putchar('\n');
}

/* The settings that were played, and the devices. */
static void print_terms(const struct sg_replayed *replay)
{
    char conf[4096], recorded[4096] = "", size[SG_SIZE_TEXT];
    const char *played = sg_replayed_conf(replay, conf, sizeof conf);
    bool ours = replay->play.policy == SG_POLICY_SEGALLOC;
    printf("Played %s%s%s", ours ? "" : "by PyTorch's rules, ", *played ? "under " : "under the defaults",
        *played ? played : "");
    if (replay->recorded.ours && ours) {
        sg_recorded_conf_text(&replay->recorded.conf, recorded, sizeof recorded);
        if (replay->as_recorded || !replay->conf_text)
            fputs(", as recorded", stdout);
        else
            printf(" (recorded under %s)", *recorded ? recorded : "the defaults");
    }
    const char *comma = ", on ";
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        if (!replay->result.device[i].used)
            continue;
        printf("%sdevice %d of %s", comma, i, sg_size_format(replay->result.device[i].card_bytes, size));
        comma = ", ";
    }
    puts(".");
}

static void replay_print_verdict(const struct sg_replayed *replay)
{
    const struct sg_play_result *result = &replay->result;
    char bytes[SG_SIZE_TEXT], live[SG_SIZE_TEXT], lack[SG_SIZE_TEXT];
    uint64_t allocs = result->allocs + result->failures;
    if (!result->ooms) {
        const char *too = result->failures ? ", those that failed when recorded too" : "";
        if (allocs == 1)
            printf("The only allocation fits%s.\n", result->failures ? ", which failed when recorded" : "");
        else
            printf("All %" PRIu64 " allocations fit%s.\n", allocs, too);
        return;
    }
    printf("%" PRIu64 " of %" PRIu64 " allocation%s %s not fit", result->ooms, allocs, sg_plural(allocs),
        result->ooms == 1 ? "does" : "do");
    if (result->new_ooms < result->ooms)
        printf(", %" PRIu64 " of them failed when recorded too", result->ooms - result->new_ooms);
    printf(".\nThe first is event %" PRIu64 ": %s asked for with %s in use", result->first_oom_event,
        sg_size_format(result->first_oom_bytes, bytes), sg_size_format(result->first_oom_live, live));
    if (result->first_oom_outside)
        printf(" and %s held by other calls", sg_size_format(result->first_oom_outside, live));
    if (result->first_oom_short)
        printf(", short by %s", sg_size_format(result->first_oom_short, lack));
    printf("; the largest asks for %s.\n", sg_size_format(result->largest_oom, bytes));
}

static void print_smallest(const struct sg_replayed *replay)
{
    const struct sg_play_result *result = &replay->result;
    uint64_t largest = sg_smallest_largest(&replay->smallest, result);
    char size[SG_SIZE_TEXT];
    unsigned devices = 0;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        devices += result->device[i].used;
    if (!largest) {
        puts("  no card is large enough");
        return;
    }
    replay_print_row(sg_replayed_is_lower_bound(replay) ? "at least a card" : "smallest card", largest,
        devices == 1 ? result->peak_requested : 0);
    for (int i = 0; devices > 1 && i < SG_DEVICES_MAX; i++)
        if (result->device[i].used)
            printf("    device %-7d %12s\n", i, sg_size_format(replay->smallest.card[i], size));
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        if (replay->smallest.failing[i])
            printf("    device %d: a larger card may fail, as one of %s does\n", i,
                sg_size_format(replay->smallest.failing[i], size));
    if (result->failures)
        puts("  An allocation failed when this was recorded: what would have come after it is not\n"
             "  in the trace. `segalloc rehearse -- CMD` plays the program to its end.");
}

/* PyTorch's rules make pages only in expandable segments. */
static void print_work(const struct sg_replayed *replay)
{
    const struct sg_play_result *result = &replay->result;
    if (replay->play.policy == SG_POLICY_PYTORCH) {
        const struct sg_play_calls *calls = &result->calls;
        printf("  %-16s %12" PRIu64 "   of the driver\n", "calls",
            calls->reserve + calls->create + calls->map + calls->set_access + calls->unmap + calls->release +
                calls->alloc + calls->free + calls->sync);
        return;
    }
    printf("  %-16s %12" PRIu64 "   about %.1f ms of driver calls over the whole run, estimated\n", "pages created",
        result->calls.create, (double)result->growth_ns / 1e6);
    printf("  %-16s %12" PRIu64 "   about %.1f ms, estimated\n", "pages moved", result->pages_moved,
        (double)result->move_ns / 1e6);
    if (!replay->play.ordered)
        return;
    printf("  %-16s %12" PRIu64 "   of the host, beyond the program's own\n", "waits", result->host_waits);
    if (result->strict_frees)
        printf("  %-16s %12" PRIu64 "   of %" PRIu64 " strict frees\n", "", result->strict_waits, result->strict_frees);
}

void sg_replayed_print_text(const struct sg_replayed *replay)
{
    const struct sg_play_result *result = &replay->result;
    uint64_t live = result->peak_requested;
    print_terms(replay);
    replay_print_verdict(replay);
    replay_print_row("live at peak", live, 0);
    replay_print_row("allocated", result->peak_allocated, live);
    if (result->peak_pending)
        replay_print_row("pending", result->peak_pending, live);
    replay_print_row("reserved", result->peak_reserved, live);
    if (replay->min_limit)
        print_smallest(replay);
    print_work(replay);
    if (result->unmatched_frees)
        printf("  %" PRIu64 " free%s of what was allocated before the trace begins\n", result->unmatched_frees,
            sg_plural(result->unmatched_frees));
    if (result->diverged_event)
        printf("  from event %" PRIu64
               " on other decisions than the recorded ones: by another version, or part of the trace is missing\n",
            result->diverged_event);
    if (replay->bench)
        printf("  %-16s %9.1f ns an allocation or free\n", "core alone", replay->ns_per_op);
    const struct sg_trace_info *info = sg_trace_info(replay->reader);
    if (info->end_text)
        printf("  the trace is incomplete: %s\n", info->end_text);
    printf("%" PRIu64 " event%s in %.2f s, %.1f million a second\n", result->events, sg_plural(result->events),
        replay->seconds, (double)result->events / replay->seconds / 1e6);
}
