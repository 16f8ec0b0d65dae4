#include "config/conf_read.h"
#include "bounds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ledger_driver.h"
#include "core/core.h"
#include "inspect/core_state.h"
#include "idmap.h"
#include "size.h"

enum { UNIT = 512 };

static bool broken;

bool bounds_broken(void)
{
    return broken;
}

void bounds_expect(const struct terms *terms, bool holds, const char *bound, uint64_t value, uint64_t most)
{
    if (holds)
        return;
    broken = true;
    fprintf(stderr,
        "adversaries: %s on %.3f GiB with \"%s\", pages of %" PRIu64 " MiB: %s: %" PRIu64 " > %" PRIu64 "\n",
        terms->name, (double)terms->card_bytes / (double)SG_GIB, terms->conf, terms->page_bytes / SG_MIB, bound, value,
        most);
}

/* What a request is rounded up to. */
static uint64_t rounded(uint64_t bytes)
{
    return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* The most bytes of pages that a block can touch. */
static uint64_t reach_of(uint64_t bytes, uint64_t page)
{
    uint64_t units = rounded(bytes);
    return ((units - UNIT + page - 1) / page + 1) * page;
}

struct facts facts_of(const struct events *events, uint64_t page)
{
    struct facts facts = {0};
    uint64_t *bytes = calloc(events->blocks, sizeof *bytes);
    if (!bytes)
        abort();
    for (size_t i = 0; i < events->count; i++) {
        const struct event *event = &events->event[i];
        if (event->bytes) {
            uint64_t reach = reach_of(event->bytes, page);
            bytes[event->block] = event->bytes;
            facts.allocs++;
            facts.live += event->bytes;
            facts.reach += reach;
            facts.allocs_reach += reach;
            facts.largest_reach = reach > facts.largest_reach ? reach : facts.largest_reach;
        } else {
            facts.live -= bytes[event->block];
            facts.reach -= reach_of(bytes[event->block], page);
            facts.frees_reach += reach_of(bytes[event->block], page);
        }
        facts.peak_live = facts.live > facts.peak_live ? facts.live : facts.peak_live;
        facts.peak_reach = facts.reach > facts.peak_reach ? facts.reach : facts.peak_reach;
    }
    free(bytes);
    return facts;
}

struct game {
    const struct terms *terms;
    struct sg_core *core;
    struct sg_idmap pages; /* page -> live blocks in it */
    uint64_t touched, allocated;
    struct block {
        CUdeviceptr address;
        uint64_t bytes;
    } *block;
    struct outcome outcome;
};

/* A live block more, or less, in each page of [address, address + bytes). */
static void touch(struct game *game, uint64_t address, uint64_t bytes, int by)
{
    uint64_t size = game->terms->page_bytes;
    for (uint64_t page = address / size; page <= (address + bytes - 1) / size; page++) {
        uint64_t count = sg_idmap_take(&game->pages, page) + (uint64_t)(int64_t)by;
        if (count && !sg_idmap_put(&game->pages, page, count))
            abort();
        if (count == (by > 0))
            game->touched += by > 0 ? size : -size;
    }
    if (game->touched > game->outcome.peak_touched)
        game->outcome.peak_touched = game->touched;
}

static uint64_t allocated_now(struct sg_core *core)
{
    struct sg_stats stats;
    return sg_core_stats(core, 0, &stats) ? stats.value[SG_STAT_allocated_bytes] : 0;
}

static void play_event(struct game *game, const struct event *event)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    uint64_t page = game->terms->page_bytes;
    struct block *at = &game->block[event->block];
    if (event->bytes == 0) {
        if (at->address && sg_core_free(game->core, at->address, &tag) != CUDA_SUCCESS)
            abort();
        if (at->address)
            touch(game, at->address, at->bytes, -1);
        at->address = 0;
        game->allocated = allocated_now(game->core);
    } else if (sg_core_malloc(game->core, 0, event->bytes, &tag, &at->address) == CUDA_SUCCESS) {
        uint64_t before = game->allocated;
        game->allocated = allocated_now(game->core);
        at->bytes = game->allocated - before;
        touch(game, at->address, at->bytes, 1);
    } else { /* refused only where the pages in use and those for this block are more than the card */
        uint64_t need = game->touched + (rounded(event->bytes) + page - 1) / page * page;
        at->address = 0;
        bounds_expect(game->terms, need > game->terms->card_bytes, "an allocation that fits is refused", need,
                      game->terms->card_bytes);
    }
}

static void collect(struct game *game)
{
    struct sg_stats stats;
    if (!sg_core_stats(game->core, 0, &stats))
        return;
    game->outcome.peak_reserved = stats.peak[SG_STAT_reserved_bytes];
    game->outcome.peak_allocated = stats.peak[SG_STAT_allocated_bytes];
    game->outcome.pages_moved = stats.value[SG_STAT_pages_moved];
    game->outcome.ooms = stats.value[SG_STAT_refused];
    game->outcome.allocs = stats.value[SG_STAT_allocs];
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The bounds that hold however memory is configured. */
static void check_any(const struct terms *terms, const struct facts *facts, const struct outcome *outcome)
{
    uint64_t least = facts->allocs_reach < facts->frees_reach ? facts->allocs_reach : facts->frees_reach;
    uint64_t moved = outcome->pages_moved * terms->page_bytes;
    bounds_expect(terms, outcome->peak_reserved <= terms->card_bytes, "reserved over the card", outcome->peak_reserved,
                  terms->card_bytes);
    bounds_expect(terms, outcome->peak_touched <= facts->peak_reach, "pages touched over the reach of the live blocks",
                  outcome->peak_touched, facts->peak_reach);
    bounds_expect(terms, moved <= least, "moved over the reach of all blocks", moved, least);
}

static void check_fixed(const struct terms *terms, const struct outcome *outcome)
{
    uint64_t budget = (uint64_t)(terms->slack * (double)outcome->peak_allocated);
    uint64_t most = larger(outcome->peak_touched, terms->slack > 1 || outcome->ooms ? budget : 0);
    bounds_expect(terms, outcome->peak_reserved <= most, "reserved over the slack and the pages touched",
                  outcome->peak_reserved, most);
}

static void check_auto(const struct terms *terms, const struct facts *facts, const struct outcome *outcome)
{
    if (outcome->peak_reserved + facts->largest_reach <= terms->card_bytes)
        bounds_expect(terms, outcome->pages_moved == 0, "pages moved while there was room", outcome->pages_moved, 0);
}

struct outcome bounds_play(const struct terms *terms, const struct events *events, const struct facts *facts)
{
    struct game game = {.terms = terms, .block = calloc(events->blocks, sizeof *game.block)};
    struct sg_ledger card;
    struct sg_conf conf;
    sg_ledger_init(&card, terms->card_bytes, terms->page_bytes);
    sg_ledger_use(&card);
    sg_conf_init(&conf);
    if (sg_conf_apply(&conf, SG_CONF_ARGUMENT, terms->conf, NULL, NULL) || !sg_idmap_init(&game.pages) || !game.block)
        abort();
    if (conf.page_size == SG_AUTO)
        conf.page_size = terms->page_bytes; /* the card's granule */
    game.core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &sg_ledger_driver});
    if (!game.core)
        abort();
    for (size_t i = 0; i < events->count; i++)
        play_event(&game, &events->event[i]);
    collect(&game);
    sg_core_destroy(game.core);
    sg_ledger_fini(&card);
    sg_idmap_fini(&game.pages);
    free(game.block);
    check_any(terms, facts, &game.outcome);
    if (terms->slack > 0)
        check_fixed(terms, &game.outcome);
    else
        check_auto(terms, facts, &game.outcome);
    return game.outcome;
}
