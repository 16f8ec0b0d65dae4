#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "books.h"
#include "random.h"
#include "size.h"

enum { OPS_MOST = 6000, LIVE_MOST = 4000 };

/* What sizes are like: each request is of one of the ways that a program has. */
enum way { TINY, SMALL, LARGE, EDGE, TWOS, OF_CARD, FEW, HUGE_ONES, CROWD, WAYS };

static struct drawer {
    struct random random;
    struct fuzz_setup setup;
    char conf[FUZZ_CONF_BYTES];
    struct fuzz_op op[OPS_MOST];
    uint32_t ops;
    enum way way[WAYS];
    uint32_t ways;
    uint64_t few[6], page;
    struct {
        uint32_t block;
        uint64_t bytes;
    } held[LIVE_MOST];
    uint32_t holds, most_held, blocks;
    uint64_t alive, most; /* bytes; how many may be */
    uint32_t streams;     /* numbers used */
    uint32_t phase;
    uint32_t progress, events, uses, rare; /* of a thousand operations */
    bool faults, limits, contexts_change, streams_change, host_faults, outside, captures;
} the;

static uint64_t below(uint64_t n)
{
    return random_below(&the.random, n);
}

static bool one_in(uint64_t n)
{
    return below(n) == 0;
}

/* In [1, most], as many small ones as large ones in the logarithm. */
static uint64_t log_below(uint64_t most)
{
    unsigned bits = 64 - (unsigned)__builtin_clzll(most);
    uint64_t value = below(UINT64_C(1) << (1 + below(bits))) + 1;
    return value < most ? value : most;
}

static uint64_t draw_size(void)
{
    static const int64_t beside[] = {-513, -512, -1, 0, 1, 511, 512, 513};
    uint64_t card = the.setup.total, page = the.page;
    uint64_t most = card / 3 < 2 * SG_MIB ? card / 3 + 1 : card / 3;
    switch (the.way[below(the.ways)]) {
    case TINY:
        return 1 + below(4096);
    case SMALL:
        return 1 + below(SG_MIB);
    case LARGE:
        return 64 * SG_KIB + below(most < 200 * SG_MIB ? most : 200 * SG_MIB);
    case EDGE: {
        int64_t bytes = (int64_t)(page * (one_in(4) ? 1 : below(12))) + beside[below(8)];
        return bytes > 0 ? (uint64_t)bytes : page / 2;
    }
    case TWOS:
        return UINT64_C(1) << below(64 - (unsigned)__builtin_clzll(card));
    case OF_CARD:
        return card / 8 + 1 + below(card - card / 8);
    case FEW:
        return the.few[below(6)];
    case HUGE_ONES:
        return card / 2 + below(card / 2 + 2);
    case CROWD:
        return page + page / 2 + below(page / 16 + 1);
    default:
        return log_below(card);
    }
}

static void add(struct fuzz_op op)
{
    if (the.ops < OPS_MOST)
        the.op[the.ops++] = op;
}

static uint8_t some_stream(void)
{
    return (uint8_t)below(the.streams);
}

static void conf(const char *name, const char *value)
{
    size_t length = strlen(the.conf);
    snprintf(the.conf + length, sizeof the.conf - length, "%s%s:%s", length ? "," : "", name, value);
}

static void conf_number(const char *name, uint64_t mib)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)mib);
    conf(name, text);
}

static void conf_real(const char *name, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.2f", value);
    conf(name, text);
}

static void draw_splitting(void)
{
    if (one_in(6))
        conf("garbage_collection_threshold", one_in(2) ? "0.5" : "0.9");
    if (one_in(6))
        conf_number("max_split_size_mb", 80 + log_below(1000));
    if (one_in(12))
        conf("roundup_power2_divisions", one_in(2) ? "4" : "[1:2,64:16,256:1,>:8]");
    if (one_in(12))
        conf_number("large_segment_size_mb", 11 + below(60));
    if (one_in(12))
        conf_number("max_non_split_rounding_mb", 80 + below(200));
}

/* The places of overflow: the host, another device, or both. */
static void draw_overflow(void)
{
    char places[80] = "", host[40];
    bool peer = the.setup.devices > 1 && one_in(2);
    snprintf(host, sizeof host, "%shost=%lluB", peer ? "," : "", (unsigned long long)(the.setup.total / (1 + below(6))));
    if (peer && one_in(2))
        snprintf(places, sizeof places, "peer");
    else if (peer)
        snprintf(places, sizeof places, "peer=%lluB", (unsigned long long)(the.setup.total / (2 + below(6))));
    if (!peer || one_in(2))
        snprintf(places + strlen(places), sizeof places - strlen(places), "%s", host);
    conf("overflow", places);
}

/* Texts that the configuration takes; what it is about is told from the names. */
static void draw_conf(void)
{
    static const char *const pages[] = {"2", "4", "6", "16", "34", "3", "128"};
    static const char *const syncs[] = {"strict", "stream", "event", "auto"};
    the.conf[0] = '\0';
    if (one_in(8))
        conf("expandable_segments", "False");
    else if (one_in(12))
        conf("ipc", "always");
    if (one_in(3))
        conf_real("reserve_slack", one_in(2) ? 1.0 : 1.0 + (double)below(150) / 100);
    if (one_in(4))
        conf("page_size_mb", pages[below(7)]);
    if (one_in(6))
        conf("alias", "off");
    else if (one_in(8)) /* a large card has as many pages: mappings are scarce */
        conf_number("mapping_limit", 1024 + below(2048));
    if (one_in(5))
        conf("free_sync", syncs[below(4)]);
    if (one_in(5))
        conf_number("pending_limit", the.setup.total >> below(8) | 1);
    uint64_t limit = the.setup.total / 4 + below(the.setup.total);
    if (one_in(8))
        conf_number("limit", limit < 2 * SG_MIB ? 2 * SG_MIB : limit);
    else if (one_in(12))
        conf_real("per_process_memory_fraction", 0.3 + (double)below(70) / 100);
    if (one_in(10))
        conf("limit_visible", "True");
    draw_splitting();
    if (one_in(3))
        draw_overflow();
    the.setup.conf = the.conf;
}

static void draw_streams(void)
{
    struct fuzz_setup *setup = &the.setup;
    static const uint8_t counts[] = {0, 1, 1, 2, 2, 3, 4, 6, 8};
    bool plain = !one_in(3), legacy = false;
    setup->streams = counts[below(sizeof counts)];
    if (one_in(16)) /* what the core keeps for each eighth stream is for several then */
        setup->streams = (uint8_t)(9 + below(FUZZ_STREAMS_AT_ONCE - 8));
    for (int i = 0; i < setup->streams; i++) {
        enum fuzz_nature nature = plain || one_in(2) ? FUZZ_PLAIN : (enum fuzz_nature)below(FUZZ_NATURES);
        if (nature == FUZZ_LEGACY && legacy)
            nature = FUZZ_BLOCKING;
        legacy = legacy || nature == FUZZ_LEGACY;
        setup->nature[i] = (uint8_t)nature;
        setup->context_of[i] = setup->contexts ? (uint8_t)below(setup->contexts) : 0;
    }
    the.streams = setup->streams ? setup->streams : 1;
}

static void draw_setup(void)
{
    struct fuzz_setup *setup = &the.setup;
    *setup = (struct fuzz_setup){.devices = 1, .granularity = 2 * SG_MIB};
    if (one_in(6))
        setup->granularity = UINT64_C(1) << (16 + below(8)); /* 64 KiB to 8 MiB */
    uint64_t granules = 4 + (one_in(3) ? below(24) : one_in(20) ? log_below(1 << 18) : log_below(1 << 12));
    if (one_in(2))
        granules = 4 + below(200);
    setup->total = granules * setup->granularity + (one_in(4) ? below(setup->granularity) : 0);
    if (one_in(4)) {
        setup->contexts = (uint8_t)(1 + below(3));
        setup->devices = setup->contexts > 1 && one_in(3) ? 2 : 1;
    }
    setup->sees_possible = one_in(4);
    setup->missed_calls = one_in(10);
    setup->older = one_in(6);
    setup->bounded = one_in(12);
    setup->lag = one_in(2) ? 0 : (uint8_t)(1 + below(one_in(2) ? 12 : FUZZ_LAG_MOST));
    setup->slots = one_in(32);
    setup->check_every = one_in(3) ? 1 : (uint8_t)(1 + below(12));
    draw_streams();
    draw_conf();
    the.page = setup->granularity;
    const char *page = strstr(the.conf, "page_size_mb:");
    if (page && one_in(2))
        the.page = (strtoull(strchr(page, ':') + 1, NULL, 10) * SG_MIB + setup->granularity - 1) /
                   setup->granularity * setup->granularity;
}

static void draw_habits(void)
{
    static const double loads[] = {0.4, 0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.3, 2.5};
    static const uint32_t crowds[] = {2, 4, 8, 16, 40, 100, 400, LIVE_MOST};
    the.ways = (uint32_t)(one_in(4) ? WAYS : 1 + below(3));
    for (uint32_t i = 0; i < the.ways; i++)
        the.way[i] = the.ways == WAYS ? (enum way)i : (enum way)below(WAYS);
    for (int i = 0; i < 6; i++)
        the.few[i] = 1 + below(the.setup.total / (UINT64_C(1) << below(13)) + 1);
    the.most = (uint64_t)(loads[below(sizeof loads / sizeof *loads)] * (double)the.setup.total);
    the.most_held = crowds[below(sizeof crowds / sizeof *crowds)];
    bool works = !one_in(4) && the.setup.streams;
    the.progress = works ? (uint32_t)below(200) : 0;
    the.events = works && the.setup.streams > 1 ? (uint32_t)below(300) : (uint32_t)below(20);
    the.uses = works ? (uint32_t)below(300) : 0;
    the.faults = one_in(5);
    the.host_faults = one_in(30);
    the.limits = one_in(5);
    the.outside = one_in(6);
    the.captures = one_in(12);
    the.rare = (uint32_t)(one_in(2) ? below(20) : below(80)) + (the.faults || the.host_faults ? 60 : 0);
    the.contexts_change = the.setup.contexts && one_in(2);
    the.streams_change = the.setup.streams && one_in(4);
    the.holds = the.blocks = the.ops = the.phase = 0;
    the.alive = 0;
}

static void draw_allocate(void)
{
    uint64_t bytes = draw_size();
    struct fuzz_op op = {.kind = FUZZ_ALLOCATE, .block = the.blocks++, .bytes = bytes,
        .other = (uint8_t)below(the.setup.devices), .stream = the.setup.streams ? some_stream() : FUZZ_STREAMS};
    if (one_in(30))
        op.stream = FUZZ_STREAMS;
    op.flags = (uint8_t)((one_in(4) ? 0 : FUZZ_WORKS) | (one_in(40) ? FUZZ_UNKNOWN : 0));
    add(op);
    the.held[the.holds].block = op.block;
    the.held[the.holds++].bytes = bytes;
    the.alive += bytes;
}

static void draw_free(void)
{
    uint64_t dice = below(4);
    uint32_t at = dice == 0 ? 0 : dice == 1 ? the.holds - 1 : (uint32_t)below(the.holds);
    uint8_t how = (uint8_t)(one_in(3) ? below(FUZZ_FREES) : FUZZ_FREE_STREAM);
    add((struct fuzz_op){.kind = FUZZ_FREE, .block = the.held[at].block, .other = how, .stream = some_stream()});
    the.alive -= the.held[at].bytes;
    the.holds--;
    memmove(&the.held[at], &the.held[at + 1], (the.holds - at) * sizeof *the.held);
}

static void draw_event(void)
{
    static const uint8_t kinds[] = {FUZZ_RECORD, FUZZ_RECORD, FUZZ_RECORD, FUZZ_WAIT, FUZZ_WAIT, FUZZ_WAIT,
        FUZZ_EVENT_QUERY, FUZZ_EVENT_SYNC, FUZZ_STREAM_SYNC, FUZZ_STREAM_QUERY};
    add((struct fuzz_op){.kind = kinds[below(sizeof kinds)], .stream = some_stream(),
        .other = (uint8_t)below(one_in(2) ? 4 : FUZZ_EVENTS), .flags = one_in(4) ? FUZZ_INDIRECT : 0});
}

static void draw_use(void)
{
    if (!the.holds)
        return;
    add((struct fuzz_op){.kind = FUZZ_USE, .block = the.held[below(the.holds)].block, .stream = some_stream(),
        .flags = (uint8_t)(below(16) & (FUZZ_WORKS | FUZZ_WAITS | FUZZ_WAITED_FOR | (one_in(4) ? FUZZ_UNNAMED : 0)))});
}

/* Idle memory, limits, and who may reach it. */
static bool draw_of_memory(uint64_t dice, struct fuzz_op *op)
{
    switch (dice) {
    case 0:
    case 1:
        op->kind = FUZZ_TRIM;
        op->bytes = one_in(2) ? 0 : below(the.setup.total);
        break;
    case 2:
        op->kind = FUZZ_POLL;
        break;
    case 3:
        op->kind = FUZZ_MEM_INFO;
        break;
    case 4:
        op->kind = FUZZ_CONTEXT_SYNC;
        op->other = (uint8_t)below(the.setup.contexts ? FUZZ_CONTEXTS : 1);
        break;
    case 5:
    case 6:
        op->kind = the.limits ? FUZZ_LIMIT : FUZZ_POLL;
        op->bytes = one_in(3) ? UINT64_MAX : one_in(4) ? log_below(the.setup.total) : below(the.setup.total) + 1;
        break;
    case 7:
        op->kind = one_in(3) ? FUZZ_PIN : FUZZ_ABROAD;
        op->bytes = one_in(2) ? UINT64_MAX : 1 + (one_in(2) ? below(the.page) : log_below(the.setup.total));
        break;
    case 8:
        op->kind = one_in(3) ? FUZZ_PEER : FUZZ_BAD_FREE;
        op->bytes = below(2);
        break;
    default:
        break;
    }
    return true;
}

/* What the driver does, and others with it. */
static bool draw_of_driver(uint64_t dice, uint8_t device, struct fuzz_op *op)
{
    switch (dice) {
    case 9:
        op->kind = the.captures ? FUZZ_CAPTURE : FUZZ_RESET_PEAKS;
        op->bytes = below(2);
        break;
    case 10:
        op->kind = the.outside ? FUZZ_OUTSIDE : FUZZ_MEM_INFO;
        op->bytes = one_in(3) ? 0 : below(the.setup.total);
        break;
    case 11:
    case 12:
    case 13:
        op->kind = the.faults ? FUZZ_FAULT : FUZZ_TRIM;
        op->other = device;
        if (the.faults)
            op->other = (uint8_t)below(one_in(2) ? BOOKS_address_reserve : BOOKS_CALL_COUNT);
        op->bytes = the.faults ? log_below(one_in(3) ? 40 : 4) - 1 : 0;
        op->flags = the.faults && one_in(6) ? FUZZ_FOR_EVER : 0;
        break;
    case 14:
        op->kind = the.host_faults ? FUZZ_HOST_FAULT : FUZZ_LOOK;
        op->bytes = the.host_faults ? below(6) : below(100000);
        break;
    default:
        break;
    }
    return true;
}

/* Contexts and streams that come and go. False: nothing. */
static bool draw_of_streams(uint64_t dice, uint8_t device, struct fuzz_op *op)
{
    switch (dice) {
    case 15:
        op->kind = FUZZ_ASIDE;
        break;
    case 16:
        op->kind = the.contexts_change ? FUZZ_CONTEXT_GONE : FUZZ_LOOK;
        op->other = (uint8_t)(the.contexts_change ? below(FUZZ_CONTEXTS) : device);
        op->bytes = the.contexts_change ? 0 : below(100000);
        break;
    case 17:
        op->kind = one_in(2) ? FUZZ_CONTEXT_CURRENT : FUZZ_CONTEXT_NEW;
        op->other = (uint8_t)below(FUZZ_CONTEXTS);
        op->bytes = below(the.setup.devices);
        break;
    case 18:
        op->kind = the.streams_change ? FUZZ_STREAM_GONE : FUZZ_LOOK;
        break;
    default:
        op->kind = FUZZ_STREAM_NEW;
        op->other = (uint8_t)(one_in(2) ? FUZZ_PLAIN : below(FUZZ_LEGACY));
        op->bytes = the.setup.contexts ? below(FUZZ_CONTEXTS) : 0;
        op->stream = (uint8_t)the.streams;
        if (!the.streams_change || the.streams == FUZZ_STREAMS)
            return false;
        the.streams++;
        break;
    }
    return true;
}

/* What comes seldom, as far as this program has it. */
static void draw_rare(void)
{
    uint8_t device = (uint8_t)below(the.setup.devices);
    uint32_t block = the.holds ? the.held[below(the.holds)].block : 0;
    struct fuzz_op op = {.other = device, .block = block, .stream = some_stream()};
    uint64_t dice = below(20);
    bool any = dice < 9    ? draw_of_memory(dice, &op)
               : dice < 15 ? draw_of_driver(dice, device, &op)
                           : draw_of_streams(dice, device, &op);
    if (any)
        add(op);
}

static void draw_step(void)
{
    static const uint32_t wants[] = {500, 800, 200};
    uint32_t dice = (uint32_t)below(1000);
    if (one_in(60))
        the.phase = (uint32_t)below(3);
    if (dice < the.rare) {
        draw_rare();
    } else if ((dice = (uint32_t)below(1000)) < the.events) {
        draw_event();
    } else if (below(1000) < the.uses) {
        draw_use();
    } else if (below(1000) < the.progress) {
        add((struct fuzz_op){.kind = FUZZ_PROGRESS, .stream = some_stream(), .bytes = one_in(8) ? 1000 : below(8)});
    } else if (the.setup.streams && one_in(30)) {
        add((struct fuzz_op){.kind = FUZZ_WORK, .stream = some_stream(), .flags = one_in(2) ? FUZZ_UNNAMED : 0});
    } else if (!the.holds || (below(1000) < wants[the.phase] && the.holds < the.most_held &&
                                 the.holds < LIVE_MOST && the.alive < the.most)) {
        draw_allocate();
    } else {
        draw_free();
    }
}

/* Some programs grow by a page or two at a time to hundreds, on a card with room for more, before much is freed: where
   pages are made ahead, and holes are left behind them. */
static void draw_growth(void)
{
    static const enum way ways[] = {EDGE, CROWD, CROWD, FEW};
    struct fuzz_setup *setup = &the.setup;
    setup->total = (700 + below(2000)) * setup->granularity;
    setup->check_every = (uint8_t)(4 + below(12));
    the.conf[0] = '\0';
    the.page = setup->granularity;
    the.ways = 1 + (uint32_t)below(3);
    for (uint32_t i = 0; i < the.ways; i++)
        the.way[i] = ways[below(sizeof ways / sizeof *ways)];
    for (int i = 0; i < 6; i++)
        the.few[i] = the.page / 2 + below(2 * the.page);
    the.most = setup->total / 10 * 7;
    the.most_held = LIVE_MOST;
    the.phase = 1;
    the.rare = 20 + (uint32_t)below(60);
}

struct fuzz_program fuzz_draw(uint64_t seed)
{
    struct random first = {seed};
    the.random.state = random_next(&first); /* the seeds beside it are not beside it in the sequence */
    draw_setup();
    draw_habits();
    uint32_t length = (uint32_t)(one_in(100) ? 1000 + below(OPS_MOST - 1000) : one_in(3) ? 10 + below(300)
                                                                                        : 10 + below(80));
    if (one_in(40)) {
        draw_growth();
        length = 250 + (uint32_t)below(500);
    }
    while (the.ops < length)
        draw_step();
    return (struct fuzz_program){the.setup, the.op, the.ops};
}
