/* Plays each adversary through the allocator on a bookkeeping card, and checks the bounds of docs/bounds.md: exit
   status 1 if one is broken. PyTorch's policy stands beside for comparison. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adversary.h"
#include "card.h"
#include "core.h"
#include "creep.h"
#include "idmap.h"
#include "size.h"
#include "torch_card.h"
#include "torch_conf.h"

static const uint64_t PAGE = 2 * SG_MIB, ROOMY = SG_TIB;
/* Of the policy, as docs/design.md has them. */
static const double LOOSE = 0.80, SLACK_LOOSE = 1.10;
enum { TOKENS_PER_PAGE = 64, UNIT = 512 };

static bool broken;

/* What follows from the events alone. */
struct facts {
    uint64_t live, peak_live;       /* bytes asked for */
    uint64_t allocs;
    uint64_t reach, peak_reach;     /* bytes of all pages that the live blocks could touch, wherever they stand */
    uint64_t allocs_reach, frees_reach; /* the same, summed over all allocations and over all frees */
};

/* The most that a request can be rounded up to: the unit, and a step of 1/64 where sizes creep. */
static uint64_t rounded_most(uint64_t bytes)
{
    uint64_t rounded = (bytes + UNIT - 1) / UNIT * UNIT;
    return rounded < SG_CREEP_LEAST * UNIT ? rounded : rounded + rounded / SG_CREEP_STEPS;
}

/* The most bytes of pages that a block can touch. */
static uint64_t reach_of(uint64_t bytes)
{
    uint64_t rounded = rounded_most(bytes);
    return ((rounded - UNIT + PAGE - 1) / PAGE + 1) * PAGE;
}

static struct facts facts_of(const struct events *events)
{
    struct facts facts = {0};
    uint64_t *bytes = calloc(events->blocks, sizeof *bytes);
    if (!bytes)
        abort();
    for (size_t i = 0; i < events->count; i++) {
        const struct event *event = &events->event[i];
        if (event->bytes) {
            bytes[event->block] = event->bytes;
            facts.allocs++;
            facts.live += event->bytes;
            facts.reach += reach_of(event->bytes);
            facts.allocs_reach += reach_of(event->bytes);
        } else {
            facts.live -= bytes[event->block];
            facts.reach -= reach_of(bytes[event->block]);
            facts.frees_reach += reach_of(bytes[event->block]);
        }
        facts.peak_live = facts.live > facts.peak_live ? facts.live : facts.peak_live;
        facts.peak_reach = facts.reach > facts.peak_reach ? facts.reach : facts.peak_reach;
    }
    free(bytes);
    return facts;
}

struct outcome {
    uint64_t card, peak_reserved, peak_allocated, peak_touched; /* touched: pages with a live block in them, bytes */
    uint64_t pages_moved, forced, backoffs, ooms, allocs;
};

struct game {
    const struct adversary *adversary;
    const char *conf;
    struct sg_core *core;
    struct sg_idmap pages; /* page -> live blocks in it */
    uint64_t touched;
    struct outcome outcome;
};

static void expect(const struct game *game, bool holds, const char *bound, uint64_t value, uint64_t most)
{
    if (holds)
        return;
    broken = true;
    fprintf(stderr, "adversaries: %s on %.2f GiB with \"%s\": %s: %" PRIu64 " > %" PRIu64 "\n", game->adversary->name,
            (double)game->outcome.card / (double)SG_GIB, game->conf, bound, value, most);
}

/* A live block more, or less, in each page of [address, address + bytes). */
static void touch(struct game *game, uint64_t address, uint64_t bytes, int by)
{
    for (uint64_t page = address / PAGE; page <= (address + bytes - 1) / PAGE; page++) {
        uint64_t count = sg_idmap_take(&game->pages, page) + (uint64_t)(int64_t)by;
        if (count && !sg_idmap_put(&game->pages, page, count))
            abort();
        if (count == (by > 0))
            game->touched += by > 0 ? PAGE : -PAGE;
    }
    if (game->touched > game->outcome.peak_touched)
        game->outcome.peak_touched = game->touched;
}

static uint64_t allocated_now(struct sg_core *core)
{
    struct sg_stats stats;
    return sg_core_stats(core, 0, &stats) ? stats.value[SG_STAT_allocated_bytes] : 0;
}

static struct outcome play(const struct adversary *adversary, const struct events *events, const char *conf_text, uint64_t card_bytes)
{
    struct game game = {.adversary = adversary, .conf = conf_text, .outcome = {.card = card_bytes}};
    struct block {
        CUdeviceptr address;
        uint64_t bytes;
    } *block = calloc(events->blocks, sizeof *block);
    struct sg_card card;
    struct sg_conf conf;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_AUTO};
    uint64_t allocated = 0;
    sg_card_init(&card, card_bytes, PAGE);
    sg_card_use(&card);
    sg_conf_init(&conf);
    if (sg_conf_apply(&conf, SG_CONF_ARGUMENT, conf_text, NULL, NULL) || !sg_idmap_init(&game.pages) || !block)
        abort();
    game.core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &sg_card_driver});
    if (!game.core)
        abort();
    for (size_t i = 0; i < events->count; i++) {
        const struct event *event = &events->event[i];
        struct block *at = &block[event->block];
        if (event->bytes == 0) {
            if (at->address && sg_core_free(game.core, at->address, &tag) != CUDA_SUCCESS)
                abort();
            if (at->address)
                touch(&game, at->address, at->bytes, -1);
            at->address = 0;
            allocated = allocated_now(game.core);
        } else if (sg_core_malloc(game.core, 0, event->bytes, &tag, &at->address) == CUDA_SUCCESS) {
            uint64_t before = allocated;
            allocated = allocated_now(game.core);
            at->bytes = allocated - before;
            touch(&game, at->address, at->bytes, 1);
        } else { /* refused only where the pages in use and those for this block are more than the card */
            uint64_t need = game.touched + (rounded_most(event->bytes) + PAGE - 1) / PAGE * PAGE;
            at->address = 0;
            expect(&game, need > card_bytes, "an allocation that fits is refused", need, card_bytes);
        }
    }
    struct sg_stats stats;
    if (sg_core_stats(game.core, 0, &stats)) {
        game.outcome.peak_reserved = stats.peak[SG_STAT_reserved_bytes];
        game.outcome.peak_allocated = stats.peak[SG_STAT_allocated_bytes];
        game.outcome.pages_moved = stats.value[SG_STAT_pages_moved];
        game.outcome.forced = stats.value[SG_STAT_moves_forced];
        game.outcome.backoffs = stats.value[SG_STAT_thrash_backoffs];
        game.outcome.ooms = stats.value[SG_STAT_ooms];
        game.outcome.allocs = stats.value[SG_STAT_allocs];
    }
    sg_core_destroy(game.core);
    sg_card_fini(&card);
    sg_idmap_fini(&game.pages);
    free(block);
    return game.outcome;
}

static uint64_t play_torch(const struct events *events, const char *conf_text)
{
    struct sg_torch_card card;
    struct sg_torch_conf conf;
    char error[SG_TORCH_ERROR_TEXT];
    struct sg_torch_block **block = calloc(events->blocks, sizeof *block);
    sg_torch_card_init(&card, ROOMY);
    if (!block || sg_torch_conf_parse(conf_text, &conf, error))
        abort();
    struct sg_torch *torch = sg_torch_create(&conf, ROOMY, &sg_torch_card_ops, &card);
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
    sg_torch_card_clear(&card);
    free(block);
    return peak;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The bounds that hold however memory is configured. */
static void check_any(const struct adversary *adversary, const struct facts *facts, const char *conf, const struct outcome *outcome)
{
    const struct game game = {.adversary = adversary, .conf = conf, .outcome = *outcome};
    uint64_t least = facts->allocs_reach < facts->frees_reach ? facts->allocs_reach : facts->frees_reach;
    expect(&game, outcome->peak_reserved <= outcome->card, "reserved over the card", outcome->peak_reserved, outcome->card);
    expect(&game, outcome->peak_touched <= facts->peak_reach, "pages touched over the reach of the live blocks", outcome->peak_touched, facts->peak_reach);
    expect(&game, outcome->pages_moved * PAGE <= least, "moved over the reach of all blocks", outcome->pages_moved * PAGE, least);
    uint64_t most = outcome->allocs / TOKENS_PER_PAGE + outcome->forced;
    expect(&game, outcome->pages_moved <= most, "pages moved over the tokens", outcome->pages_moved, most);
}

static void check_tight(const struct adversary *adversary, const char *conf, const struct outcome *outcome)
{
    const struct game game = {.adversary = adversary, .conf = conf, .outcome = *outcome};
    expect(&game, outcome->peak_reserved <= outcome->peak_touched, "reserved over the pages touched", outcome->peak_reserved, outcome->peak_touched);
    expect(&game, outcome->ooms == 0, "refusals on a card with room", outcome->ooms, 0);
}

static void check_auto(const struct adversary *adversary, const struct outcome *outcome)
{
    const struct game game = {.adversary = adversary, .conf = "", .outcome = *outcome};
    uint64_t loose = (uint64_t)(LOOSE * (double)outcome->card), slack = (uint64_t)(SLACK_LOOSE * (double)outcome->peak_allocated);
    uint64_t most = larger(loose, larger(slack, outcome->peak_touched));
    if (outcome->backoffs == 0)
        expect(&game, outcome->peak_reserved <= most, "reserved over 80 % of the card, 1.10 of allocated and the pages touched",
               outcome->peak_reserved, most);
    if (outcome->peak_reserved < loose)
        expect(&game, outcome->pages_moved == 0, "pages moved below 80 % of the card", outcome->pages_moved, 0);
}

static void print_outcome(bool json, const char *name, const struct outcome *outcome, const struct facts *facts)
{
    if (json)
        printf(", \"%s\": {\"card_bytes\": %" PRIu64 ", \"peak_reserved_bytes\": %" PRIu64 ", \"peak_touched_bytes\": %" PRIu64
               ", \"pages_moved\": %" PRIu64 ", \"moves_forced\": %" PRIu64 ", \"thrash_backoffs\": %" PRIu64 ", \"ooms\": %" PRIu64 "}",
               name, outcome->card, outcome->peak_reserved, outcome->peak_touched, outcome->pages_moved, outcome->forced,
               outcome->backoffs, outcome->ooms);
    else
        printf("  %-6s reserved %.4f touched %.4f moved %" PRIu64 " ooms %" PRIu64 "\n", name,
               (double)outcome->peak_reserved / (double)facts->peak_live, (double)outcome->peak_touched / (double)facts->peak_live,
               outcome->pages_moved, outcome->ooms);
}

static void run(const struct adversary *adversary, bool json)
{
    struct events events = {0};
    adversary->write(&events);
    struct facts facts = facts_of(&events);
    uint64_t tight_card = ((uint64_t)(1.02 * (double)facts.peak_live) + PAGE - 1) / PAGE * PAGE;
    static const char *const tight_conf = "reserve_slack:1.0", *const split_conf = "reserve_slack:1.0,max_split_size_mb:128";
    struct outcome fixed = play(adversary, &events, tight_conf, ROOMY), split = play(adversary, &events, split_conf, ROOMY);
    struct outcome snug = play(adversary, &events, "", tight_card), twice = play(adversary, &events, "", 2 * facts.peak_live / PAGE * PAGE);
    check_any(adversary, &facts, tight_conf, &fixed);
    check_any(adversary, &facts, split_conf, &split);
    check_any(adversary, &facts, "", &snug);
    check_any(adversary, &facts, "", &twice);
    check_tight(adversary, tight_conf, &fixed);
    check_tight(adversary, split_conf, &split);
    check_auto(adversary, &snug);
    check_auto(adversary, &twice);
    const struct game game = {.adversary = adversary, .conf = split_conf, .outcome = split};
    expect(&game, split.pages_moved <= fixed.pages_moved, "pages moved with max_split_size over those without", split.pages_moved, fixed.pages_moved);
    uint64_t native = play_torch(&events, ""), expandable = play_torch(&events, "expandable_segments:True");
    uint64_t both = adversary->torch_conf ? play_torch(&events, adversary->torch_conf) : 0;
    if (json)
        printf("{\"name\": \"%s\", \"events\": %zu, \"peak_live_bytes\": %" PRIu64 ", \"peak_reach_bytes\": %" PRIu64, adversary->name,
               events.count, facts.peak_live, facts.peak_reach);
    else
        printf("%s: %s; %zu events, %.2f GiB live at most, reach %.4f\n", adversary->name, adversary->text, events.count,
               (double)facts.peak_live / (double)SG_GIB, (double)facts.peak_reach / (double)facts.peak_live);
    print_outcome(json, "tight", &fixed, &facts);
    print_outcome(json, "x1.02", &snug, &facts);
    print_outcome(json, "x2", &twice, &facts);
    if (json) {
        printf(", \"torch\": %" PRIu64 ", \"torch_expandable\": %" PRIu64, native, expandable);
        if (both)
            printf(", \"torch_both\": %" PRIu64, both);
        printf("}\n");
    } else {
        printf("  PyTorch: default %.4f expandable %.4f", (double)native / (double)facts.peak_live, (double)expandable / (double)facts.peak_live);
        if (both)
            printf(" with max_split_size too %.4f", (double)both / (double)facts.peak_live);
        printf("\n");
    }
    events_free(&events);
}

int main(int argc, char **argv)
{
    bool json = false, any = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
            continue;
        }
        bool known = false;
        for (size_t k = 0; k < adversary_count; k++)
            known = known || strcmp(argv[i], adversaries[k].name) == 0;
        if (!known) {
            fprintf(stderr, "usage: adversaries [--json] [NAME...]\nno adversary \"%s\"; there are:", argv[i]);
            for (size_t k = 0; k < adversary_count; k++)
                fprintf(stderr, " %s", adversaries[k].name);
            fprintf(stderr, "\n");
            return 2;
        }
        any = true;
    }
    for (size_t k = 0; k < adversary_count; k++) {
        bool wanted = !any;
        for (int i = 1; i < argc; i++)
            wanted = wanted || strcmp(argv[i], adversaries[k].name) == 0;
        if (wanted)
            run(&adversaries[k], json);
    }
    return broken ? 1 : 0;
}
