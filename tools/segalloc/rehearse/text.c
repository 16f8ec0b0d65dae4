/* The answer of a rehearsal, as text. */
#include "rehearse/rehearse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "launch/machine.h"
#include "rehearse/ends.h"
#include "size.h"

static const char *const assumptions[] = {
    "Kernels do not compute. If a tensor's size depends on a computed value, the estimate is wrong for it.",
    "What the program writes is not real. Files that were there are as they were (not with --overwrite); new ones stay.",
    "Copies of more than 1 MiB move no bytes. GPU memory set to zero takes no memory of this machine.",
    "Mathematics libraries are stand-ins: workspaces that they allocate by themselves count as 0.",
    "Memory by other calls than cudaMalloc counts as asked for, and what pools keep. A driver rounds it up: a pool by up to 32 MiB.",
};
static const char assumed_same[] =
    "The program asks for the same on every card. The free memory that it is told of is the largest card's.";
static const char assumed_adapts[] =
    "The program makes do with less on a smaller card. Where it did not fit as it ran first, it ran on a card of that size.";
static const char assumed_asked[] =
    "The program asks how much memory there is. It ran with the answer of each named card that it fits.";
static const char assumed_asks[] =
    "The program asks how much memory there is. On a card that was not named it may ask for other sizes.";
static const char assumed_no_model[] =
    "The GPU's model is made up, with compute capability 8.0. A card given by name (--card h100) has its own.";
static const char assumed_steady[] = "It ends once some steps of the optimizer have raised no peak. What the program "
                                     "does later, such as evaluations, is not in it.";
static const char assumed_steps[] =
    "It ends after the steps of --steps. What the program does later, such as evaluations, is not in it.";
static const char assumed_fast[] =
    "The run is faster than on a GPU. What a thread frees by the clock counts longer (PyTorch's watchdog of NCCL: each "
    "0.1 s), so a smaller card may do.";
static const char assumed_apart[] = "Processes that are on one card at once count together, each with its peak, and a "
                                    "context each. Peaks that never meet need "
                                    "less.";
static const char assumed_beneath[] =
    "PyTorch's cache asks for the same segments on every card. On a full card it first gives idle ones back, so a "
    "smaller card may do.";

unsigned sg_rehearse_assumed(const struct sg_rehearse *rehearse, const char *ret[SG_REHEARSE_ASSUMED])
{
    const struct {
        bool applies;
        const char *text;
    } more[] = {
        {true, rehearse->adapts ? assumed_adapts : rehearse->asks ? assumed_asked : assumed_same},
        {rehearse->asks, assumed_asks},
        {rehearse->steps || rehearse->steady, rehearse->steady ? assumed_steady : assumed_steps},
        {!sg_rehearse_largest(rehearse)->name, assumed_no_model},
        {rehearse->processes > 1, assumed_fast},
        {rehearse->processes > 1, assumed_apart},
        {rehearse->beneath, assumed_beneath},
    };
    unsigned count = sizeof assumptions / sizeof *assumptions;
    _Static_assert(sizeof assumptions / sizeof *assumptions + sizeof more / sizeof *more <= SG_REHEARSE_ASSUMED,
        "room for all");
    memcpy(ret, assumptions, sizeof assumptions);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i].applies)
            ret[count++] = more[i].text;
    return count;
}

enum { SAME_PART = 16 }; /* what differs by less than this part of it is the same to a reader */

bool sg_rehearse_has_cards(const struct sg_rehearse *rehearse)
{
    return rehearse->processes && (rehearse->outcome != SG_REHEARSE_STOPPED || rehearse->interrupted);
}

const struct sg_rehearse_card *sg_rehearse_largest(const struct sg_rehearse *rehearse)
{
    return &rehearse->card[rehearse->card_count - 1];
}

bool sg_rehearse_at_least(const struct sg_rehearse *rehearse)
{
    return rehearse->left || rehearse->ends.stopped || rehearse->steps || rehearse->steady || rehearse->interrupted ||
           rehearse->ooms || rehearse->beyond;
}

/* "24.00 GiB", or "4090, 23.52 GiB". */
static const char *card_name(const struct sg_rehearse_card *card, char ret[64])
{
    char size[SG_SIZE_TEXT];
    snprintf(ret, 64, "%s%s%s", card->name ? card->name : "", card->name ? ", " : "",
             sg_size_format(card->bytes, size));
    return ret;
}

/* The size of the smallest card, beside a card that is too small. Where both round alike it has whole MiB: "1026 MiB"
   beside "1.00 GiB". */
static const char *text_larger_than(uint64_t smallest, uint64_t card, char *buffer)
{
    char small[SG_SIZE_TEXT];
    if (strcmp(sg_size_format(smallest, buffer), sg_size_format(card, small)) == 0)
        snprintf(buffer, SG_SIZE_TEXT, "%" PRIu64 " MiB", (smallest + SG_MIB - 1) / SG_MIB);
    return buffer;
}

/* "does not fit: the smallest card that does has 33.17 GiB, 9.17 GiB more". "fits, 3.74 GiB to spare, 3.08 GiB of them
   after context and libraries". */
static void rehearse_print_verdict(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    static const char *const words[] = {"fits", "too close to call", "does not fit", "fits with overflow, "};
    char size[SG_SIZE_TEXT], more[SG_SIZE_TEXT];
    uint64_t smallest = sg_rehearse_smallest(rehearse, card), lack = sg_rehearse_short_by(rehearse, card);
    uint64_t spare = card->fits && smallest && card->bytes > smallest ? card->bytes - smallest : 0;
    bool far = sg_rehearse_verdict(rehearse, card) == SG_REHEARSE_FITS_WITH_OVERFLOW;
    fputs(words[sg_rehearse_verdict(rehearse, card)], stdout);
    if (far)
        sg_rehearse_print_bill(rehearse, card);
    if (spare)
        printf(", %s to spare", sg_size_format(spare, size));
    if (spare && card->margin && spare >= card->margin)
        printf(", %s of them after context and libraries", sg_size_format(spare - card->margin, more));
    else if (spare && card->margin)
        printf(" where context and libraries take some %s", sg_size_format(card->margin, more));
    if (lack)
        printf("%s the smallest card that does has %s%s, %s more", far ? "; without it" : ":",
            sg_rehearse_at_least(rehearse) ? "at least " : "", text_larger_than(smallest, card->bytes, size),
            sg_size_format(lack, more));
}

/* The program's run on a card of this size, which it does not fit by what it takes on a card without end. */
static void print_ran(const struct sg_rehearse_card *card)
{
    char size[SG_SIZE_TEXT];
    printf("  It was run on a card of this size too%s, and %s there: %s were needed",
        card->asked ? ", for it asks how much memory there is" : "",
        card->adapted ? "makes do with less" : "came to its end", sg_size_format(card->ran_smallest, size));
    if (!card->adapted) {
        puts(".");
        return;
    }
    if (card->adapted_ooms)
        printf(", %" PRIu64 " allocation%s failed, and it went on without", card->adapted_ooms, sg_plural(card->adapted_ooms));
    else if (card->adapted_refused)
        printf(", %" PRIu64 " call%s for memory %s refused and made good", card->adapted_refused,
            sg_plural(card->adapted_refused), card->adapted_refused == 1 ? "was" : "were");
    puts(".");
}

static void print_card(const struct sg_rehearse *rehearse, const struct sg_rehearse_card *card)
{
    char name[64], asked[SG_SIZE_TEXT], live[SG_SIZE_TEXT];
    uint64_t lack = sg_rehearse_short_by(rehearse, card);
    printf("%s: ", card_name(card, name));
    if (card->open) {
        puts("not known.");
        return;
    }
    rehearse_print_verdict(rehearse, card);
    puts(".");
    if (card->ran)
        print_ran(card);
    if (card->turns)
        printf("  It was run on a card of this size too: its processes had room there one after the other. Where their "
               "peaks meet "
               "they need %s.\n",
            sg_size_format(rehearse->alone.segalloc, asked));
    if (card->ran_out)
        printf("  It was run on a card of this size too%s, and came to no good end there%s%s\n",
            card->asked ? ", for it asks how much memory there is" : "", *card->last_line ? ": " : ".", card->last_line);
    if (!card->ends_at_event || card->ran || card->turns)
        return;
    printf("  First failure: %s asked for%s%s%s%s%s%s with %s in use", sg_size_format(card->ends_with_bytes, asked),
        card->ends_by ? " " : "", card->ends_by ? sg_outside_call(card->ends_by) : "",
        *card->site ? " at " : "", card->site, *card->phase ? " in " : "", card->phase,
        sg_size_format(card->ends_with_live + card->ends_with_outside, live));
    if (card->ends_with_outside)
        printf(" (%s by other calls)", sg_size_format(card->ends_with_outside, asked));
    if (card->of_events)
        printf(",\n  at event %" PRIu64 " of %" PRIu64 " (%.0f %% of the run)\n", card->ends_at_event, card->of_events,
            100 * (double)card->ends_at_event / (double)card->of_events);
    else
        puts("");
    if (card->ends_short_by && card->ends_short_by + lack / SAME_PART < lack)
        printf("  That allocation alone lacks %s; later ones need more, and the smallest card has room for all.\n",
            sg_size_format(card->ends_short_by, asked));
}

/* "  By role: 12.00 GiB activations, 3.00 GiB optimizer state, 96.00 MiB other". Roles of less than 1 % are the others. */
static void rehearse_print_roles(const struct sg_roles *roles, uint64_t all)
{
    char size[SG_SIZE_TEXT];
    enum sg_role order[SG_ROLE_COUNT];
    uint32_t count = sg_roles_order(roles, order);
    uint64_t rest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = roles->bytes[order[i]];
        if (i && bytes < all / 100)
            rest += bytes;
        else
            printf("%s %s %s", i ? "," : "  By role:", sg_size_format(bytes, size), sg_role_text(order[i]));
    }
    if (rest)
        printf(", %s other", sg_size_format(rest, size));
    if (count)
        putchar('\n');
}

static void print_held(const struct sg_rehearse_held *held)
{
    char size[SG_SIZE_TEXT], each[SG_SIZE_TEXT];
    uint64_t bytes = held->bytes, blocks = held->blocks;
    for (int i = 0; i < SG_REHEARSE_IN_USE && held->group[i].bytes; i++) {
        const struct sg_rehearse_in_use *in_use = &held->group[i];
        bytes -= in_use->bytes;
        blocks -= in_use->blocks;
        printf("  %12s in %" PRIu64 " block%s", sg_size_format(in_use->bytes, size), in_use->blocks,
            sg_plural(in_use->blocks));
        if (*in_use->site)
            printf(", %s\n", in_use->site);
        else if (in_use->blocks > 1)
            printf(", %s on average\n", sg_size_format(in_use->bytes / in_use->blocks, each));
        else
            putchar('\n');
    }
    if (blocks)
        printf("  %12s in %" PRIu64 " other block%s\n", sg_size_format(bytes, size), blocks, sg_plural(blocks));
    rehearse_print_roles(&held->roles, held->bytes);
}

/* Memory by calls that segalloc does not serve. */
static void rehearse_print_outside(const struct sg_outside *outside)
{
    char size[SG_SIZE_TEXT];
    for (int i = 0; i < SEGALLOC_OUTSIDE_COUNT; i++)
        if (outside->bytes[i])
            printf("  %12s %s\n", sg_size_format(outside->bytes[i], size), sg_outside_call((enum segalloc_outside)i));
}

/* The largest groups: when the largest of the cards that do not fit was full, and at the peak. */
static void print_in_use(const struct sg_rehearse *rehearse)
{
    const struct sg_rehearse_card *card = NULL;
    char size[SG_SIZE_TEXT];
    for (unsigned i = 0; i < rehearse->card_count; i++)
        card = rehearse->card[i].ends_at_event && !rehearse->card[i].ran ? &rehearse->card[i] : card;
    if (card && card->held.blocks) {
        printf("Largest in use when a card of %s was full:\n", sg_size_format(card->bytes, size));
        print_held(&card->held);
    }
    if (card && (rehearse->at_peak.blocks || sg_outside_sum(&rehearse->outside))) {
        printf("Largest in use at the peak of the run, %s:\n",
            sg_size_format(rehearse->at_peak.bytes + sg_outside_stays(&rehearse->outside), size));
        rehearse_print_outside(&rehearse->outside);
        print_held(&rehearse->at_peak);
    }
}

static void print_alone(const struct sg_rehearse *rehearse)
{
    char size[SG_SIZE_TEXT];
    const struct sg_rehearse_alone *alone = &rehearse->alone;
    if (!alone->segalloc)
        return;
    if (rehearse->adapts || rehearse->differs) {
        puts("Smallest card: not known, for the program asks by what there is: --card 8GiB,16GiB asks for others, each by a run of "
             "its own.");
        return;
    }
    const char *least = sg_rehearse_at_least(rehearse) ? "at least " : "";
    if (!alone->pytorch) {
        printf("Smallest card: %s%s\n", least, sg_size_format(alone->segalloc, size));
        return;
    }
    puts("Smallest card:");
    printf("  PyTorch alone                 %s%s\n", least, sg_size_format(alone->pytorch, size));
    if (alone->pytorch_expandable)
        printf("  PyTorch, expandable_segments  %s%s\n", least, sg_size_format(alone->pytorch_expandable, size));
    printf("  segalloc                      %s%s\n", least, sg_size_format(alone->segalloc, size));
}

void sg_rehearse_print_line(const struct sg_rehearse *rehearse)
{
    char size[SG_SIZE_TEXT], expandable[SG_SIZE_TEXT], name[64];
    if (!sg_rehearse_has_cards(rehearse)) {
        printf("it stopped: %s\n", rehearse->reason);
        return;
    }
    for (unsigned i = 0; i < rehearse->card_count; i++) {
        printf("%s%s ", i ? "; " : "", card_name(&rehearse->card[i], name));
        if (rehearse->card[i].open)
            fputs("is not known: it was stopped", stdout);
        else
            rehearse_print_verdict(rehearse, &rehearse->card[i]);
    }
    const struct sg_rehearse_alone *alone = &rehearse->alone;
    if (rehearse->adapts || rehearse->differs) {
        puts(rehearse->differs ? ". It asks for something else on another card." : ". It makes do with less on a smaller card.");
        return;
    }
    if (alone->segalloc)
        printf(". Smallest card: %s%s", sg_rehearse_at_least(rehearse) ? "at least " : "",
            sg_size_format(alone->segalloc, size));
    if (alone->segalloc && alone->pytorch)
        printf(" (PyTorch alone %s, with expandable_segments %s)", sg_size_format(alone->pytorch, size),
            sg_size_format(alone->pytorch_expandable, expandable));
    puts(alone->segalloc ? "" : ".");
}

/* An argument as a shell takes it. */
static void print_argument(const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=:,./@%";
    if (*text && text[strspn(text, plain)] == '\0') {
        printf(" %s", text);
        return;
    }
    fputs(" '", stdout);
    for (; *text; text++)
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, stdout);
    putchar('\'');
}

/* Where there is no GPU, the program can run on a simulated card only: on the smallest that it was rehearsed for.
   Copies of more than 1 MiB move nothing there, as in the rehearsal: they would take as much of this machine's
   memory. */
static void print_where(const struct sg_rehearse *rehearse)
{
    struct sg_probe probe = {0};
    bool has_gpu = sg_probe_driver(NULL, &probe) && probe.driver && probe.result == 0 && probe.devices > 0;
    const struct sg_rehearse_card *card = &rehearse->card[0];
    char sim[256], count[32] = "";
    if (has_gpu || !rehearse->card_count)
        return;
    bool whole = card->bytes % SG_GIB == 0; /* else it has whole MiB */
    if (rehearse->devices > 1)
        snprintf(count, sizeof count, ",count=%d", rehearse->devices);
    snprintf(sim, sizeof sim, "%" PRIu64 "%s%s,drop_mb=1%s%s%s", card->bytes / (whole ? SG_GIB : SG_MIB),
        whole ? "GiB" : "MiB", count, card->name ? ",model=" : "", card->name ? card->name : "",
        rehearse->together > 1 ? ",card=shared" : "");
    fputs(" --sim", stdout);
    print_argument(sim);
}

void sg_rehearse_print_divisor(unsigned long divisor)
{
    if (divisor > 1)
        printf("A batch %lu times smaller: %lu times the steps of gradient accumulation keep the samples of an "
               "optimizer step.\n",
            divisor, divisor);
}

static void print_no_suggestion(const struct sg_rehearse *rehearse)
{
    char size[SG_SIZE_TEXT];
    uint64_t least = rehearse->alone.segalloc;
    fputs("Next: try smaller sizes of an option of the program, --try NAME=VALUE,…", stdout);
    if (least)
        printf(", or a card of %s", text_larger_than(least + sg_rehearse_largest(rehearse)->margin,
                                        sg_rehearse_largest(rehearse)->bytes, size));
    putchar('\n');
}

void sg_rehearse_print_next(const struct sg_rehearse *rehearse, bool fits)
{
    char values[128];
    if (!fits && !sg_rehearse_try_suggest(rehearse->command, values, sizeof values)) {
        print_no_suggestion(rehearse);
        return;
    }
    if (fits) {
        fputs("Next: segalloc run", stdout);
        print_where(rehearse);
        if (rehearse->given_conf)
            printf(" --conf %s", rehearse->needs_conf);
        for (unsigned i = 0; i < rehearse->card_count; i++)
            if (sg_rehearse_verdict(rehearse, &rehearse->card[i]) == SG_REHEARSE_FITS_WITH_OVERFLOW) {
                printf(" --conf %s", rehearse->overflow);
                break;
            }
        fputs(" --", stdout);
    } else {
        fputs("Next: segalloc rehearse", stdout);
        if (rehearse->list)
            printf(" --card %s", rehearse->list);
        if (rehearse->devices > 1)
            printf(" --devices %d", rehearse->devices);
        printf(" --try %s --", values);
    }
    for (char **argument = rehearse->command; *argument; argument++)
        print_argument(*argument);
    putchar('\n');
}

/* The parts of a card, so that the memory to spare adds up. */
static void print_sum(const struct sg_rehearse *rehearse)
{
    char size[SG_SIZE_TEXT], smallest[SG_SIZE_TEXT], left[SG_SIZE_TEXT], margin[SG_SIZE_TEXT];
    printf("Context and libraries take some %s more (--margin): with less to spare a card is too close to call.\n",
        sg_size_format(sg_rehearse_largest(rehearse)->margin, size));
    for (unsigned i = 0; i < rehearse->card_count; i++) {
        const struct sg_rehearse_card *card = &rehearse->card[i];
        uint64_t least = sg_rehearse_smallest(rehearse, card);
        if (!least || !card->fits || card->bytes < least || card->bytes - least < card->margin)
            continue;
        printf("  %s = %s %s + %s margin + %s left\n", sg_size_format(card->bytes, size),
            sg_size_format(least, smallest),
            card->ran || rehearse->adapts || rehearse->differs ? "needed there" : "smallest card",
            sg_size_format(card->margin, margin), sg_size_format(card->bytes - least - card->margin, left));
    }
    for (unsigned i = 0; i < rehearse->card_count; i++)
        if (rehearse->card[i].estimated && rehearse->card[i].name)
            printf("  The margin of %s is estimated: it is the most that was measured on other cards.\n",
                rehearse->card[i].name);
    puts("It ran on a card without end: what the program prints as reserved may be more than a full card takes.");
}

/* Processes that share a GPU need it together. */
static void print_shared(const struct sg_rehearse *rehearse)
{
    char size[SG_SIZE_TEXT];
    if (rehearse->unseen)
        printf("%u process%s had all memory from the driver, without segalloc (LD_PRELOAD was dropped, or a setting "
               "leaves it all "
               "to the driver): of %s the most is counted that it held, %s in all.\n",
            rehearse->unseen, rehearse->unseen > 1 ? "es" : "", rehearse->unseen > 1 ? "each" : "it",
            sg_size_format(rehearse->unseen_bytes, size));
    unsigned ended = rehearse->ends.stopped;
    if (ended)
        printf("%u process%s that had asked for memory ended with an error: what %s would have taken "
               "later is not known.\n",
            ended, ended == 1 ? "" : "es", ended == 1 ? "it" : "they");
    if (rehearse->given_conf)
        printf("It gives memory to another process by a legacy handle, so it was run once more with --conf %s.\n",
            rehearse->needs_conf);
    if (rehearse->left)
        printf("%u process%s on after CMD has ended: what %s then is not known.\n", rehearse->left,
            rehearse->left > 1 ? "es go" : " goes", rehearse->left > 1 ? "they take" : "it takes");
    if (rehearse->managed_bytes)
        printf("It needs %s of managed memory%s beside that. None of it is counted: on Linux the driver moves to the "
               "host what "
               "finds no room on the card, and work that needs it there waits for that.\n",
            sg_size_format(rehearse->managed_bytes, size), rehearse->processes > 1 ? " in one process" : "");
    if (rehearse->sent_bytes)
        printf("It sends %s of tensors to other processes. With segalloc such a tensor takes its memory twice, until "
               "it dies. So it "
               "is not known what PyTorch needs alone. --conf pytorch:beneath,ipc:always has each tensor once.\n",
            sg_size_format(rehearse->sent_bytes, size));
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        const struct sg_rehearse_device *device = &rehearse->device[i];
        if (device->processes > 1)
            printf("%u processes were on device %d at once: they count together, with up to %s in use, and a context "
                   "each.\n",
                device->processes, i, sg_size_format(device->taken, size));
    }
}

static void print_assumed(const struct sg_rehearse *rehearse)
{
    const char *assumed[SG_REHEARSE_ASSUMED];
    unsigned count = sg_rehearse_assumed(rehearse, assumed);
    print_sum(rehearse);
    puts("Assumed:");
    for (unsigned i = 0; i < count; i++)
        printf("  %s\n", assumed[i]);
}

void sg_rehearse_print_text(const struct sg_rehearse *rehearse)
{
    char size[SG_SIZE_TEXT];
    bool stopped = rehearse->outcome == SG_REHEARSE_STOPPED, all = true;
    if (stopped)
        printf("It stopped: %s (%.0f s).\n", rehearse->reason, rehearse->run.seconds);
    if (stopped && sg_rehearse_has_cards(rehearse))
        puts("Up to there:");
    for (unsigned i = 0; i < rehearse->card_count && sg_rehearse_has_cards(rehearse); i++) {
        print_card(rehearse, &rehearse->card[i]);
        all = all && sg_rehearse_verdict(rehearse, &rehearse->card[i]) != SG_REHEARSE_DOES_NOT_FIT;
    }
    if (sg_rehearse_has_cards(rehearse)) {
        print_in_use(rehearse);
        print_alone(rehearse);
    }
    if (rehearse->processes) {
        printf("At the peak %s were in use%s; ", sg_size_format(rehearse->peak_taken, size),
            rehearse->together > 1    ? ", by all processes that were on one card at once"
            : rehearse->processes > 1 ? ", on the device of the process with most"
                                      : "");
        printf("%" PRIu64 " allocation%s", rehearse->allocs, sg_plural(rehearse->allocs));
        if (rehearse->served_share >= 0)
            printf(", %.2f %% served by segalloc", 100 * rehearse->served_share);
        printf(" (%.0f s, on a simulated GPU).\n", rehearse->run.seconds);
    }
    if (!sg_rehearse_has_cards(rehearse))
        return;
    if (rehearse->ooms && !rehearse->adapts)
        printf("%" PRIu64 " allocation%s failed on a card without end%s: what the program would have done otherwise is not "
               "known.\n",
            rehearse->ooms, sg_plural(rehearse->ooms),
            rehearse->limited ? ", for a limit that is set" : ", which has more than any that is sold");
    print_shared(rehearse);
    if (!stopped)
        print_assumed(rehearse);
    if (!stopped)
        sg_rehearse_print_next(rehearse, all);
}
