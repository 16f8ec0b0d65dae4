/* Plays each adversary, or random programs, through the allocator on a bookkeeping card, and checks the bounds of
   docs/bounds.md: exit status 1 if one is broken. PyTorch's policy stands beside for comparison. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adversary.h"
#include "bounds.h"
#include "random.h"
#include "size.h"
#include "ledger_device.h"
#include "allocator_config.h"
#include "caching_allocator.h"

static const uint64_t PAGE = 2 * SG_MIB, ROOMY = SG_TIB;

static uint64_t play_torch(const struct events *events, const char *conf_text)
{
    struct sg_ledger_device card;
    struct sg_torch_conf conf;
    char error[SG_TORCH_ERROR_TEXT];
    struct sg_torch_block **block = calloc(events->blocks, sizeof *block);
    sg_ledger_device_init(&card, ROOMY);
    if (!block || sg_torch_conf_parse(conf_text, &conf, error))
        abort();
    struct sg_torch *torch = sg_torch_create(&conf, ROOMY, &sg_ledger_device_ops, &card);
    if (!torch)
        abort();
    for (size_t i = 0; i < events->count; i++) {
        const struct event *event = &events->event[i];
        if (event->bytes == 0)
            sg_torch_free(torch, block[event->block]);
        else if (sg_torch_alloc(torch, event->bytes, 0, &block[event->block]))
            abort();
    }
    uint64_t peak = sg_torch_stats(torch)->reserved.peak;
    sg_torch_destroy(torch);
    sg_ledger_device_clear(&card);
    free(block);
    return peak;
}

static void print_outcome(bool json, const char *name, const struct terms *terms, const struct outcome *outcome,
    const struct facts *facts)
{
    if (json)
        printf(", \"%s\": {\"card_bytes\": %" PRIu64 ", \"peak_reserved_bytes\": %" PRIu64
               ", \"peak_touched_bytes\": %" PRIu64 ", \"pages_moved\": %" PRIu64
               ", \"ooms\": %" PRIu64 "}",
            name, terms->card_bytes, outcome->peak_reserved, outcome->peak_touched, outcome->pages_moved,
            outcome->ooms);
    else
        printf("  %-6s reserved %.4f touched %.4f moved %" PRIu64 " ooms %" PRIu64 "\n", name,
            (double)outcome->peak_reserved / (double)facts->peak_live,
            (double)outcome->peak_touched / (double)facts->peak_live, outcome->pages_moved, outcome->ooms);
}

static void run(const struct adversary *adversary, bool json)
{
    struct events events = {0};
    adversary->write(&events);
    struct facts facts = facts_of(&events, PAGE);
    uint64_t tight_card = ((uint64_t)(1.02 * (double)facts.peak_live) + PAGE - 1) / PAGE * PAGE;
    const struct terms tight = {adversary->name, "reserve_slack:1.0", 1, ROOMY, PAGE};
    const struct terms with_split = {adversary->name, "reserve_slack:1.0,max_split_size_mb:128", 1, ROOMY, PAGE};
    const struct terms on_snug = {adversary->name, "", 0, tight_card, PAGE};
    const struct terms on_twice = {adversary->name, "", 0, 2 * facts.peak_live / PAGE * PAGE, PAGE};
    struct outcome fixed = bounds_play(&tight, &events, &facts), split = bounds_play(&with_split, &events, &facts);
    struct outcome snug = bounds_play(&on_snug, &events, &facts), twice = bounds_play(&on_twice, &events, &facts);
    bounds_expect(&tight, fixed.ooms == 0, "refusals on a card with room", fixed.ooms, 0);
    bounds_expect(&with_split, split.pages_moved <= fixed.pages_moved,
        "pages moved with max_split_size over those without", split.pages_moved, fixed.pages_moved);
    uint64_t native = play_torch(&events, ""), expandable = play_torch(&events, "expandable_segments:True");
    uint64_t both = adversary->torch_conf ? play_torch(&events, adversary->torch_conf) : 0;
    if (json)
        printf("{\"name\": \"%s\", \"events\": %zu, \"peak_live_bytes\": %" PRIu64 ", \"peak_reach_bytes\": %" PRIu64,
            adversary->name, events.count, facts.peak_live, facts.peak_reach);
    else
        printf("%s: %s; %zu events, %.2f GiB live at most, reach %.4f\n", adversary->name, adversary->text,
            events.count, (double)facts.peak_live / (double)SG_GIB, (double)facts.peak_reach / (double)facts.peak_live);
    print_outcome(json, "tight", &tight, &fixed, &facts);
    print_outcome(json, "x1.02", &on_snug, &snug, &facts);
    print_outcome(json, "x2", &on_twice, &twice, &facts);
    if (json) {
        printf(", \"torch\": %" PRIu64 ", \"torch_expandable\": %" PRIu64, native, expandable);
        if (both)
            printf(", \"torch_both\": %" PRIu64, both);
        printf("}\n");
    } else {
        printf("  PyTorch: default %.4f expandable %.4f", (double)native / (double)facts.peak_live,
            (double)expandable / (double)facts.peak_live);
        if (both)
            printf(" with max_split_size too %.4f", (double)both / (double)facts.peak_live);
        printf("\n");
    }
    events_free(&events);
}

/* Random programs `first` to `last`, each with pages of a size, on a card and under a slack that are its own too. */
static void search(uint64_t first, uint64_t last)
{
    for (uint64_t seed = first; seed <= last; seed++) {
        struct random random = {~seed};
        uint64_t page = PAGE << random_below(&random, 5),
                 hundredths = random_below(&random, 4) ? 0 : random_below(&random, 30);
        bool fixed = random_below(&random, 2), roomy = random_below(&random, 3) == 0;
        char name[32], conf[96] = "";
        struct events events = {0};
        adversary_random(&events, seed, page);
        struct facts facts = facts_of(&events, page);
        struct terms terms = {name, conf, fixed ? 1 + (double)hundredths / 100 : 0, ROOMY, page};
        if (!roomy)
            terms.card_bytes = (facts.peak_live * random_between(&random, 60, 220) / 100 + page) / page * page;
        snprintf(name, sizeof name, "random %" PRIu64, seed);
        if (fixed)
            snprintf(conf, sizeof conf, "reserve_slack:1.%02" PRIu64 ",", hundredths);
        size_t length = strlen(conf);
        struct outcome plain = {0}, split = {0};
        if (events.count)
            plain = bounds_play(&terms, &events, &facts);
        snprintf(conf + length, sizeof conf - length, "max_split_size_mb:%" PRIu64, random_between(&random, 20, 256));
        if (events.count)
            split = bounds_play(&terms, &events, &facts);
        if (fixed)
            bounds_expect(&terms, memcmp(&plain, &split, sizeof plain) == 0,
                "pages moved, unlike without max_split_size", split.pages_moved, plain.pages_moved);
        events_free(&events);
    }
}

static int usage(const char *wrong)
{
    fprintf(stderr,
        "usage: adversaries [--json] [NAME...], adversaries --random FIRST LAST\n\"%s\" is no adversary; there are:",
        wrong);
    for (size_t k = 0; k < adversary_count; k++)
        fprintf(stderr, " %s", adversaries[k].name);
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    bool json = false, any = false;
    if (argc == 4 && strcmp(argv[1], "--random") == 0) {
        search(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
        return bounds_broken() ? 1 : 0;
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
            continue;
        }
        bool known = false;
        for (size_t k = 0; k < adversary_count; k++)
            known = known || strcmp(argv[i], adversaries[k].name) == 0;
        if (!known)
            return usage(argv[i]);
        any = true;
    }
    for (size_t k = 0; k < adversary_count; k++) {
        bool wanted = !any;
        for (int i = 1; i < argc; i++)
            wanted = wanted || strcmp(argv[i], adversaries[k].name) == 0;
        if (wanted)
            run(&adversaries[k], json);
    }
    return bounds_broken() ? 1 : 0;
}
