/* From a seed to a plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "threads.h"

static const uint64_t KIB = 1024, MIB = 1024 * 1024;

struct draw {
    uint64_t seed, drawn;
};

uint64_t ft_random_at(uint64_t seed, uint64_t n)
{
    uint64_t z = seed + (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Below `count`. */
static uint64_t any(struct draw *d, uint64_t count)
{
    return ft_random_at(d->seed, d->drawn++) % count;
}

static uint64_t between(struct draw *d, uint64_t low, uint64_t high)
{
    return high > low ? low + any(d, high - low) : low;
}

const char *ft_action_name(enum ft_action action)
{
    static const char *const names[FT_ACTIONS] = {"allocate", "free", "use", "hand over", "take over", "wait", "trim",
        "limit", "others", "stream", "look", "graph", "pause", "resume"};
    return names[action];
}

const char *ft_kind_name(enum ft_kind kind)
{
    static const char *const names[FT_KINDS] = {"cuda", "aware", "torch"};
    return names[kind];
}

/* Ways to choose sizes, each of which puts blocks beside others of its own classes of pages. */
enum way { TINY, SMALL, LARGE, EDGE, TWOS, CARD, PARTS, FEW, WAYS };
enum { FEW_SIZES = 6, EDGES = 8 };

struct sizes {
    enum way way[WAYS];
    unsigned ways;
    uint64_t few[FEW_SIZES];
};

/* `large`: parts of the card are among them, and few others. */
static struct sizes draw_sizes(struct draw *d, uint64_t card, bool large)
{
    static const unsigned counts[] = {1, 1, 2, 3, WAYS}, parts[] = {2, 8, 64, 4096};
    struct sizes sizes = {.ways = large ? 1 + !any(d, 3) : counts[any(d, sizeof counts / sizeof *counts)]};
    enum way way[WAYS];
    for (unsigned i = 0; i < WAYS; i++)
        way[i] = (enum way)i;
    if (large) {
        way[PARTS] = way[0];
        way[0] = PARTS;
    }
    for (unsigned i = 0; i < sizes.ways; i++) {
        unsigned at = large && i == 0 ? 0 : i + (unsigned)any(d, WAYS - i);
        sizes.way[i] = way[at];
        way[at] = way[i];
    }
    for (int i = 0; i < FEW_SIZES; i++)
        sizes.few[i] = between(d, 1, card / parts[any(d, sizeof parts / sizeof *parts)]);
    return sizes;
}

static uint64_t draw_size(struct draw *d, const struct sizes *sizes, uint64_t card)
{
    static const int64_t edges[EDGES] = {-513, -512, -1, 0, 1, 511, 512, 513};
    uint64_t large = card / 3 < 200 * MIB ? card / 3 : 200 * MIB;
    switch (sizes->way[any(d, sizes->ways)]) {
    case TINY:
        return between(d, 1, 4 * KIB);
    case SMALL:
        return between(d, 1, MIB);
    case LARGE:
        return between(d, MIB, large > 2 * MIB ? large : 2 * MIB);
    case EDGE:
        return 2 * MIB * between(d, 1, 30) + (uint64_t)edges[any(d, EDGES)];
    case TWOS:
        return UINT64_C(1) << between(d, 6, 29);
    case CARD:
        return between(d, card / 8, card);
    case PARTS: /* some of them more than half, which have a page of their own */
        return any(d, 2) ? between(d, card / 32, card / 4) : between(d, card / 8, card);
    default:
        return sizes->few[any(d, FEW_SIZES)];
    }
}

static const struct {
    const char *text;
    uint64_t page_mb;   /* 0: the device's granule */
    unsigned limit_percent, probe_percent; /* of the card; of that, what can be had at once where all is free */
    bool unjudged; /* may refuse what would fit */
} options[] = {
    {"reserve_slack:auto", 0, 100, 90, false},
    {"reserve_slack:1.0", 0, 100, 90, false},
    {"reserve_slack:1.3,max_split_size_mb:100", 0, 100, 90, false},
    {"max_split_size_mb:64", 0, 100, 90, false},
    {"page_size_mb:6", 6, 100, 90, false},
    {"page_size_mb:16", 16, 100, 90, false},
    {"page_size_mb:4,reserve_slack:1.0", 4, 100, 90, false},
    {"garbage_collection_threshold:0.6", 0, 100, 90, false},
    {"roundup_power2_divisions:8", 0, 100, 75, true},
    {"limit:0.8,pending_limit:16MiB", 0, 80, 90, false},
    {"per_process_memory_fraction:0.7", 0, 70, 90, false},
    {"reserve_slack:1.05,pending_limit:4MiB", 0, 100, 90, false},
    {"trim_idle_s:0,trim_on_request:False", 0, 100, 90, false},
    {"expandable_segments:False", 0, 100, 90, true},
    {"expandable_segments:False,max_split_size_mb:64,garbage_collection_threshold:0.5", 0, 100, 90, true},
    {"alias:off,reserve_slack:1.0", 0, 100, 90, false},
    {"ipc:always", 0, 100, 90, true},
    {"expandable_segments:False,large_segment_size_mb:64", 0, 100, 90, true},
};
enum { MOVING = 13 }; /* so many of the first have pages that move, and to a second address */

static void draw_conf(struct draw *d, struct ft_plan *plan)
{
    static const char *const frees[] = {"auto", "auto", "strict", "event", "stream"};
    bool moves = plan->one_stream || (plan->manner == FT_PAUSES && any(d, 8));
    unsigned at = (unsigned)any(d, moves ? MOVING : sizeof options / sizeof *options);
    const char *policy = frees[any(d, sizeof frees / sizeof *frees)];
    bool cut_short = any(d, 6) == 0;
    plan->by_stream = strcmp(policy, "stream") == 0;
    plan->page_bytes = options[at].page_mb ? options[at].page_mb * MIB : 2 * MIB;
    plan->limit_bytes = plan->card_bytes / 100 * options[at].limit_percent;
    plan->probe_bytes = plan->limit_bytes / 100 * options[at].probe_percent / plan->page_bytes * plan->page_bytes;
    plan->judged = !options[at].unjudged && !cut_short;
    snprintf(plan->conf, sizeof plan->conf, "%s,pytorch:direct,free_sync:%s,wait_limit:%s,oom_report:%s",
        options[at].text, policy, cut_short ? any(d, 2) ? "0" : "0.005" : "30", any(d, 8) ? "never" : "every");
}

/* A call that gives memory back. */
static bool gives_back(const char *call)
{
    return strcmp(call, "cuMemUnmap") == 0 || strcmp(call, "cuMemRelease") == 0;
}

static void refuse(struct ft_plan *plan, const char *name, uint64_t n, bool on)
{
    size_t used = strlen(plan->sim);
    snprintf(plan->sim + used, sizeof plan->sim - used, ",fail=%s:%llu%s", name, (unsigned long long)n, on ? "+" : "");
    plan->refusals++;
    plan->refuses_on |= on;
    plan->refuses_back |= gives_back(name);
}

const char *ft_call_name(unsigned i)
{
    static const char *const names[FT_CALLS] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve",
        "cuMemUnmap", "cuMemRelease", "cuMemAlloc", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyBatchAsync",
        "cuMemHostRegister", "cuMemHostUnregister", "cuMemsetD8Async"};
    return names[i];
}

bool ft_plan_refuse(struct ft_plan *plan, const char *text)
{
    char name[64];
    unsigned long long n;
    if (sscanf(text, "%63[A-Za-z0-9]:%llu", name, &n) != 2 || strstr(plan->sim, name))
        return false;
    refuse(plan, name, n, false);
    plan->refused = text;
    return true;
}

/* Refusals of the driver: one call, several, or from some call on. */
static void draw_refusals(struct draw *d, struct ft_plan *plan)
{
    static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve",
        "cuMemUnmap", "cuMemRelease", "cuMemAlloc"};
    if (any(d, 3))
        return;
    for (uint64_t left = between(d, 1, 4); left > 0; left--) {
        unsigned at = (unsigned)any(d, any(d, 2) ? 2 : sizeof calls / sizeof *calls);
        bool on = at < 2 && any(d, 8) == 0;
        if (strstr(plan->sim, calls[at]))
            continue; /* one of a name counts */
        refuse(plan, calls[at], between(d, 1, any(d, 2) ? 20 : 400), on);
    }
}

static void draw_sim(struct draw *d, struct ft_plan *plan)
{
    static const char *const works[] = {"", "schedule", "schedule", "run_ahead"};
    const char *work = plan->one_stream ? "run_ahead" : works[any(d, sizeof works / sizeof *works)];
    char when[64] = "";
    if (*work)
        snprintf(when, sizeof when, ",%s=%llu", work, (unsigned long long)between(d, 1, 300));
    snprintf(plan->sim, sizeof plan->sim, "%lluMiB,hazard%s%s%s", (unsigned long long)(plan->card_bytes / MIB), when,
        any(d, 5) ? "" : ",vmm_sync=always", any(d, 5) ? "" : ",driver=12.4");
    draw_refusals(d, plan);
}

/* Weights of what is done, in a phase in which memory grows, stays and shrinks. */
enum { PHASES = 3 };
static const unsigned weights[PHASES][FT_ACTIONS] = {
    {40, 10, 24, 4, 5, 4, 1, 1, 2, 1, 2, 1, 0, 0},
    {28, 25, 24, 5, 5, 5, 1, 1, 2, 1, 2, 1, 0, 0},
    {12, 40, 20, 3, 6, 6, 2, 1, 2, 1, 2, 1, 0, 0},
};
/* Where all is on one stream: little that waits for it, so that what is freed stays behind what is under way. */
static const unsigned behind[PHASES][FT_ACTIONS] = {
    {40, 10, 24, 1, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0},
    {28, 25, 24, 1, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0},
    {12, 40, 20, 1, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0},
};

static enum ft_action draw_action(struct draw *d, const unsigned *weight)
{
    unsigned total = 0, at = 0;
    for (int i = 0; i < FT_ACTIONS; i++)
        total += weight[i];
    for (unsigned chosen = (unsigned)any(d, total); chosen >= weight[at]; at++)
        chosen -= weight[at];
    return (enum ft_action)at;
}

static void draw_part(struct draw *d, const struct ft_plan *plan, const struct sizes *common, struct ft_part *part)
{
    enum { LENGTHS = 5, FEW_BLOCKS = 2 }; /* so many of the first are few */
    static const unsigned lengths[][LENGTHS] = {{30, 100, 100, 400, 1000}, {20, 40, 60, 100, 300}};
    static const unsigned blocks[] = {3, 20, 100, 400};
    struct sizes own = draw_sizes(d, plan->card_bytes, plan->one_stream);
    const unsigned (*weight)[FT_ACTIONS] = plan->one_stream ? behind : weights;
    unsigned phase = 0;
    part->kind = plan->one_stream ? FT_AWARE + (enum ft_kind)any(d, FT_KINDS - 1) : (enum ft_kind)any(d, FT_KINDS);
    part->streams = plan->one_stream ? 0 : (unsigned)any(d, FT_OWN_STREAMS + 1);
    part->blocks_max = blocks[any(d, plan->one_stream ? FEW_BLOCKS : sizeof blocks / sizeof *blocks)];
    part->count = lengths[plan->manner == FT_PAUSES][any(d, LENGTHS)];
    part->operations = calloc(part->count, sizeof *part->operations);
    part->left_out = calloc(part->count, sizeof *part->left_out);
    if (!part->operations || !part->left_out)
        abort();
    for (unsigned i = 0; i < part->count; i++) {
        if (any(d, 40) == 0)
            phase = (unsigned)any(d, PHASES);
        part->operations[i] = (struct ft_operation){.action = draw_action(d, weight[phase]),
            .which = (uint32_t)any(d, 1 << 30), .how = (uint32_t)any(d, 1 << 30),
            .bytes = draw_size(d, any(d, 2) ? &own : common, plan->card_bytes)};
        while (plan->manner == FT_PAUSES && part->operations[i].bytes > plan->card_bytes)
            part->operations[i].bytes /= 2;
    }
}

/* Puts pauses and resumes in place of other operations, and failures of the calls that they alone make. From numbers of
   its own, so that plans without tags stay as they were. */
static void draw_tags(struct ft_plan *plan)
{
    static const char *const calls[] = {"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemHostRegister"};
    enum { EVERY = 12, EARLY = 40 };
    struct draw draw = {.seed = ~plan->seed * UINT64_C(0x2545f4914f6cdd1d)}, *d = &draw;
    plan->tags = plan->manner == FT_PAUSES || (!plan->one_stream && any(d, 2));
    for (unsigned t = 0; t < plan->threads && plan->tags; t++)
        for (unsigned i = 0; i < plan->part[t].count; i++)
            if (any(d, EVERY) == 0)
                plan->part[t].operations[i].action = any(d, 5) < 2 ? FT_PAUSE : FT_RESUME;
    if (!plan->tags || any(d, 3))
        return;
    uint64_t n = between(d, 1, EARLY);
    refuse(plan, calls[any(d, sizeof calls / sizeof *calls)], n, false);
}

static void add(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}

/* Where else memory and contents may be: on two devices, in files, in the host's memory. */
static void draw_places(struct draw *d, struct ft_plan *plan)
{
    static const char *const hosts[] = {"", "", ",overflow:host=8MiB", ",overflow:host=64MiB"};
    static const char *const pages[] = {"", ",hostpages=6MiB"};
    plan->devices = 1 + (unsigned)any(d, FT_DEVICES);
    plan->peers = plan->devices > 1 && any(d, 2);
    plan->files = any(d, 4) == 0;
    const char *host = hosts[any(d, sizeof hosts / sizeof *hosts)];
    add(plan->conf, sizeof plan->conf, host);
    if (plan->devices > 1)
        add(plan->sim, sizeof plan->sim, ",count=2");
    if (*host)
        add(plan->sim, sizeof plan->sim, pages[any(d, 2)]);
}

static uint64_t draw_card(struct draw *d, enum ft_manner manner)
{
    if (manner == FT_PAUSES) /* copies of contents take most of the time */
        return 2 * MIB * between(d, 8, 32);
    uint64_t least = 16 * MIB << any(d, 8);
    return between(d, least / MIB, 2 * least / MIB) / 2 * 2 * MIB;
}

struct ft_plan *ft_plan_draw(uint64_t seed, enum ft_manner manner)
{
    enum { FITTING = 3 }; /* who is refused waits for all that is under way */
    static const unsigned live_percent[] = {50, 90, 99, 100, 105, 150, 250};
    struct draw draw = {.seed = seed * UINT64_C(0x2545f4914f6cdd1d) ^ (uint64_t)manner}, *d = &draw;
    struct ft_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        abort();
    plan->seed = seed;
    plan->manner = manner;
    plan->devices = 1;
    plan->threads = any(d, 2) ? 2 : 4;
    plan->turns = any(d, 2);
    plan->one_stream = manner == FT_ANY && any(d, 5) < 2;
    plan->common_streams = (unsigned)any(d, FT_COMMON_STREAMS + 1);
    plan->card_bytes = draw_card(d, manner);
    unsigned live = (unsigned)any(d, plan->one_stream ? FITTING : sizeof live_percent / sizeof *live_percent);
    plan->live_max_bytes = plan->card_bytes / 100 * live_percent[live];
    draw_conf(d, plan);
    draw_sim(d, plan);
    if (manner == FT_PAUSES)
        draw_places(d, plan);
    struct sizes common = draw_sizes(d, plan->card_bytes, plan->one_stream);
    for (unsigned i = 0; i < plan->threads; i++)
        draw_part(d, plan, &common, &plan->part[i]);
    draw_tags(plan);
    return plan;
}

void ft_plan_release(struct ft_plan *plan)
{
    for (unsigned i = 0; i < plan->threads; i++) {
        free(plan->part[i].operations);
        free(plan->part[i].left_out);
    }
    free(plan);
}
