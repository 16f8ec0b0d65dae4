/* What was rehearsed, as text and as JSON. */
#include "rehearse.h"

#include <inttypes.h>
#include <stdio.h>

#include "size.h"
#include "tool.h"

static const char *const assumptions[] = {
    ("Kernels do not compute. If a tensor's size depends on a computed value, the estimate is wrong for it."),
    "copies of more than 1 MiB move nothing; sets to zero give host memory back",
    "mathematics libraries are stand-ins: their own workspaces are not counted, those that PyTorch allocates for them are",
    "the CUDA context and the code of kernels take some 0.3 to 0.6 GiB of a card: what leaves less than --margin is too close to call",
    "the program would ask for the same on every card; what depends on the card (free memory, its kind) is as on the largest named",
};
static const char assumed_beneath[] =
    "PyTorch's cache asks for the same segments on every card: on a full one it would first give back what it holds idle, so a "
    "smaller card may do than is said here";
enum { ASSUMPTIONS = sizeof assumptions / sizeof *assumptions };

static bool has_cards(const struct sg_rehearse *rehearse)
{
    return rehearse->processes && (rehearse->outcome != SG_REHEARSE_STOPPED || rehearse->interrupted);
}

static const struct sg_rehearse_card *largest(const struct sg_rehearse *rehearse)
{
    return &rehearse->card[rehearse->card_count - 1];
}

static void number(const char *key, uint64_t value, bool known)
{
    if (known)
        printf(",\"%s\":%" PRIu64, key, value);
    else
        printf(",\"%s\":null", key);
}

static void print_json_card(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    static const char *const names[] = {"fits", "too_close", "does_not_fit"};
    uint64_t smallest = rehearse->alone.segalloc;
    printf("{\"bytes\":%" PRIu64 ",\"fits\":%s,\"verdict\":\"%s\",\"headroom_bytes\":", card->bytes,
           card->fits ? "true" : "false", names[sg_rehearse_verdict(rehearse, card)]);
    if (smallest)
        printf("%" PRId64, (int64_t)card->bytes - (int64_t)smallest);
    else
        fputs("null", stdout);
    number("ends_at_event", card->ends_at_event, card->ends_at_event);
    number("of_events", card->of_events, card->ends_at_event);
    number("asked_bytes", card->ends_with_bytes, card->ends_at_event);
    number("live_bytes", card->ends_with_live, card->ends_at_event);
    fputs(",\"site\":null}", stdout);
}

void sg_rehearse_print_json(const struct sg_rehearse *rehearse)
{
    static const char *const names[] = {"completed", "out_of_memory", "stopped"};
    uint64_t smallest = rehearse->alone.segalloc;
    bool cards = has_cards(rehearse);
    printf("{\"schema\":\"segalloc.rehearse/1\",\"outcome\":\"%s\",\"reason\":", names[rehearse->outcome]);
    if (*rehearse->reason)
        sg_tool_json_string(rehearse->reason);
    else
        fputs("null", stdout);
    printf(",\"status\":%d,\"seconds\":%.1f,\"processes\":%u,\"events\":%" PRIu64 ",\"allocations\":%" PRIu64
           ",\"failures\":%" PRIu64, rehearse->run.status, rehearse->run.seconds, rehearse->processes, rehearse->events,
           rehearse->allocs, rehearse->ooms);
    printf(",\"peak_requested_bytes\":%" PRIu64 ",\"peak_reserved_bytes\":%" PRIu64, rehearse->peak_requested,
           rehearse->peak_reserved);
    number("smallest_card_bytes", smallest, smallest);
    number("short_by_bytes", sg_rehearse_short_by(rehearse, largest(rehearse)), smallest);
    printf(",\"at_least\":%s,\"margin_bytes\":%" PRIu64, rehearse->interrupted || rehearse->ooms ? "true" : "false",
           rehearse->margin);
    fputs(",\"alone\":{\"pytorch\":", stdout);
    printf(rehearse->alone.pytorch ? "%" PRIu64 : "null", rehearse->alone.pytorch);
    number("pytorch_expandable", rehearse->alone.pytorch_expandable, rehearse->alone.pytorch_expandable);
    number("segalloc", smallest, smallest);
    fputs("},\"cards\":[", stdout);
    for (unsigned i = 0; cards && i < rehearse->card_count; i++) {
        fputs(i ? "," : "", stdout);
        print_json_card(rehearse, &rehearse->card[i]);
    }
    fputs("],\"served_share\":", stdout);
    if (rehearse->served_share < 0)
        fputs("null", stdout);
    else
        printf("%.6f", rehearse->served_share);
    fputs(",\"assumptions\":[", stdout);
    for (int i = 0; i < ASSUMPTIONS; i++) {
        fputs(i ? "," : "", stdout);
        sg_tool_json_string(assumptions[i]);
    }
    if (rehearse->beneath) {
        putchar(',');
        sg_tool_json_string(assumed_beneath);
    }
    puts("]}");
}

static void print_card(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    static const char *const words[] = {"fits", "too close to call", "does not fit"};
    char size[SG_SIZE_TEXT], room[SG_SIZE_TEXT], asked[SG_SIZE_TEXT], live[SG_SIZE_TEXT];
    uint64_t smallest = rehearse->alone.segalloc, lack = sg_rehearse_short_by(rehearse, card);
    printf("  %12s  %s", sg_size_format(card->bytes, size), words[sg_rehearse_verdict(rehearse, card)]);
    if (card->fits && smallest && card->bytes >= smallest)
        printf(", %s to spare", sg_size_format(card->bytes - smallest, room));
    if (lack)
        printf(", %s short", sg_size_format(lack, room));
    if (card->ends_at_event)
        printf("; ends at event %" PRIu64 " of %" PRIu64 ", with %s in use, asking for %s", card->ends_at_event,
               card->of_events, sg_size_format(card->ends_with_live, live), sg_size_format(card->ends_with_bytes, asked));
    putchar('\n');
}

static void print_alone(const struct sg_rehearse *rehearse)
{
    char size[SG_SIZE_TEXT];
    const struct sg_rehearse_alone *alone = &rehearse->alone;
    if (!alone->segalloc)
        return;
    printf("The smallest card is %s%s.\n", rehearse->interrupted || rehearse->ooms ? "at least " : "",
           sg_size_format(alone->segalloc, size));
    if (alone->pytorch)
        printf("  PyTorch alone, without segalloc:    %s\n", sg_size_format(alone->pytorch, size));
    if (alone->pytorch_expandable)
        printf("  the same with expandable_segments:  %s\n", sg_size_format(alone->pytorch_expandable, size));
}

void sg_rehearse_print_text(const struct sg_rehearse *rehearse)
{
    char a[SG_SIZE_TEXT], b[SG_SIZE_TEXT];
    static const char *const verdicts[] = {"It completed", "It runs out of memory", "It stopped"};
    printf("%s%s%s (%.0f s).\n", verdicts[rehearse->outcome], *rehearse->reason ? ": " : "", rehearse->reason,
           rehearse->run.seconds);
    if (rehearse->processes) {
        printf("At the peak %s were in use%s; ", sg_size_format(rehearse->peak_requested, a),
               rehearse->processes > 1 ? ", on the device of the process with most" : "");
        printf("%" PRIu64 " allocation%s, %.2f %% of them served by segalloc.\n", rehearse->allocs,
               rehearse->allocs == 1 ? "" : "s", 100 * rehearse->served_share);
    }
    if (!has_cards(rehearse))
        return;
    if (rehearse->interrupted)
        puts("Up to there:");
    print_alone(rehearse);
    for (unsigned i = 0; i < rehearse->card_count; i++)
        print_card(rehearse, &rehearse->card[i]);
    if (rehearse->ooms)
        printf("%" PRIu64 " allocation%s failed on a card without end, for a limit that is set: what the program would "
               "have done otherwise is not known.\n", rehearse->ooms, rehearse->ooms == 1 ? "" : "s");
    if (rehearse->outcome != SG_REHEARSE_STOPPED) {
        printf("Left for the context and libraries: %s (--margin).\nAssumed:\n", sg_size_format(rehearse->margin, b));
        for (int i = 0; i < ASSUMPTIONS; i++)
            printf("  %s\n", assumptions[i]);
    }
    if (rehearse->beneath)
        printf("  %s\n", assumed_beneath);
}
