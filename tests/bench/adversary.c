#include "adversary.h"

#include <math.h>
#include <stdlib.h>

#include "random.h"
#include "size.h"

static void *grown(void *memory, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return memory;
    *room = *room ? 2 * *room : 1024;
    memory = realloc(memory, *room * size);
    if (!memory)
        abort();
    return memory;
}

static void append(struct events *events, uint32_t block, uint64_t bytes)
{
    events->event = grown(events->event, events->count, &events->room, sizeof *events->event);
    events->event[events->count++] = (struct event){block, bytes};
}

uint32_t events_take(struct events *events, uint64_t bytes)
{
    uint32_t block = events->unused_count ? events->unused[--events->unused_count] : events->blocks++;
    append(events, block, bytes);
    return block;
}

void events_give(struct events *events, uint32_t block)
{
    events->unused = grown(events->unused, events->unused_count, &events->unused_room, sizeof *events->unused);
    events->unused[events->unused_count++] = block;
    append(events, block, 0);
}

void events_free(struct events *events)
{
    free(events->event);
    free(events->unused);
}

static uint64_t mib(double count)
{
    return (uint64_t)(count * (double)SG_MIB);
}

/* One small block of each page outlives the others; then large blocks come. */
static void survivors(struct events *events)
{
    enum { ROUNDS = 60, PER_PAGE = 64 };
    uint32_t block[4 * PER_PAGE], kept[ROUNDS * 8], keeps = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 4 * PER_PAGE; i++)
            block[i] = events_take(events, 32 * SG_KIB);
        for (int i = 0; i < 4 * PER_PAGE; i++) {
            if (i % PER_PAGE == 5)
                kept[keeps++] = block[i];
            else
                events_give(events, block[i]);
        }
        for (int i = 0; i < 16; i++)
            block[i] = events_take(events, mib(1.1 + i % 5));
        for (int i = 0; i < 16; i++) {
            if (i % 8 == 3)
                kept[keeps++] = block[i];
            else
                events_give(events, block[i]);
        }
        uint32_t large = events_take(events, mib(150 + round));
        events_give(events, large);
    }
    while (keeps)
        events_give(events, kept[--keeps]);
}

/* What is freed is asked for again with half a kilobyte more. */
static void near_miss(struct events *events)
{
    enum { BLOCKS = 120, ROUNDS = 60 };
    uint32_t block[BLOCKS];
    uint64_t bytes[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        block[i] = events_take(events, bytes[i] = mib(2 + i % 7 * 1.5));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = round % 2; i < BLOCKS; i += 2)
            events_give(events, block[i]);
        for (int i = round % 2; i < BLOCKS; i += 2)
            block[i] = events_take(events, bytes[i] += 512);
    }
    for (int i = 0; i < BLOCKS; i++)
        events_give(events, block[i]);
}

/* Two phases whose sizes have nothing in common, each freeing in an order of its own, over a few blocks that stay. */
static void phases(struct events *events)
{
    enum { ROUNDS = 40, MOST = 80 };
    struct random random = {3};
    uint32_t block[MOST], stay[20];
    for (int i = 0; i < 20; i++)
        stay[i] = events_take(events, mib(3.7));
    for (int round = 0; round < ROUNDS; round++) {
        int count = round % 2 ? 49 : 80;
        for (int i = 0; i < count; i++)
            block[i] = events_take(events, round % 2 ? mib(11.93) : mib(7.31));
        for (int left = count; left > 0; left--) {
            int which = (int)random_below(&random, (uint64_t)left);
            events_give(events, block[which]);
            block[which] = block[left - 1];
            if (left == count / 2) { /* one of those that stay is renewed while half is free */
                events_give(events, stay[round % 20]);
                stay[round % 20] = events_take(events, mib(3.7));
            }
        }
    }
    for (int i = 0; i < 20; i++)
        events_give(events, stay[i]);
}

/* Activations of sequences that get longer by a few tokens each step. */
static void longer_sequences(struct events *events)
{
    enum { LAYERS = 16, HIDDEN = 2048 };
    uint32_t kept[LAYERS], state[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        state[i] = events_take(events, mib(40));
    for (uint64_t tokens = 512; tokens <= 4096; tokens += 24) {
        for (int layer = 0; layer < LAYERS; layer++) {
            uint32_t wide = events_take(events, tokens * HIDDEN * 8), scores = events_take(events, tokens * tokens * 2);
            kept[layer] = events_take(events, tokens * HIDDEN * 2);
            events_give(events, scores);
            events_give(events, wide);
        }
        uint32_t logits = events_take(events, tokens * 32000 * 2);
        for (int layer = LAYERS; layer-- > 0;) {
            uint32_t gradient = events_take(events, tokens * HIDDEN * 8);
            events_give(events, kept[layer]);
            events_give(events, gradient);
        }
        events_give(events, logits);
    }
    for (int i = 0; i < LAYERS; i++)
        events_give(events, state[i]);
}

static double pareto(struct random *random, double least, double alpha, double most)
{
    double u = ((double)random_below(random, 1 << 30) + 1) / (double)(1 << 30), value = least * pow(u, -1 / alpha);
    return value < most ? value : most;
}

/* Sizes and lifetimes with heavy tails: most are small and short, a few are huge or stay. */
static void heavy_tails(struct events *events)
{
    enum { STEPS = 15000 };
    struct random random = {11};
    struct dying {
        uint32_t block, next;
    } *dying = calloc(STEPS, sizeof *dying);
    uint32_t *first = calloc(STEPS + 1, sizeof *first); /* at each step, 1 + the first that dies then */
    if (!dying || !first)
        abort();
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t at = first[step]; at; at = dying[at - 1].next)
            events_give(events, dying[at - 1].block);
        uint64_t bytes = (uint64_t)pareto(&random, 2000, 0.45, (double)(2 * SG_GIB));
        double death = (double)step + pareto(&random, 3, 0.9, STEPS);
        uint32_t when = death < STEPS ? (uint32_t)death : STEPS;
        dying[step] = (struct dying){events_take(events, bytes), first[when]};
        first[when] = step + 1;
    }
    for (uint32_t at = first[STEPS]; at; at = dying[at - 1].next)
        events_give(events, dying[at - 1].block);
    free(dying);
    free(first);
}

/* pytorch#123548: of each cycle a small block stays, and fences what was freed from what could grow. */
static void runaway_of(struct events *events, double large, double middle)
{
    enum { CYCLES = 100 };
    uint32_t kept[CYCLES];
    for (int i = 0; i < CYCLES; i++) {
        uint32_t a = events_take(events, mib(large)), b = events_take(events, mib(middle));
        kept[i] = events_take(events, mib(2));
        events_give(events, a);
        events_give(events, b);
    }
    for (int i = 0; i < CYCLES; i++)
        events_give(events, kept[i]);
}

/* Below the limit of 128 MiB: they may not take the oversize range that is left. */
static void runaway(struct events *events)
{
    runaway_of(events, 91, 45.5);
}

/* Above it: they may not take a range that is larger by more than the rounding. */
static void runaway_large(struct events *events)
{
    runaway_of(events, 182, 141);
}

/* Logits of four lengths over a large vocabulary, in half and in full precision, with their gradients. */
static void logits(struct events *events)
{
    static const uint64_t tokens[] = {17000, 19000, 20480, 14500};
    uint32_t weights[30];
    for (int i = 0; i < 30; i++)
        weights[i] = events_take(events, mib(97.3));
    for (int step = 0; step < 60; step++) {
        uint64_t half = tokens[step % 4] * 151936 * 2;
        uint32_t hidden = events_take(events, tokens[step % 4] * 3584 * 2), out = events_take(events, half),
                 full = events_take(events, 2 * half);
        events_give(events, out);
        uint32_t loss = events_take(events, tokens[step % 4] * 4), gradient = events_take(events, 2 * half);
        events_give(events, full);
        uint32_t back = events_take(events, half);
        events_give(events, gradient);
        uint32_t update = events_take(events, mib(97.3));
        events_give(events, back);
        events_give(events, hidden);
        events_give(events, loss);
        events_give(events, weights[step % 30]);
        weights[step % 30] = update;
    }
    for (int i = 0; i < 30; i++)
        events_give(events, weights[i]);
}

/* Pairs of 530 and 270 MiB, one of each kind alive from one step to the next. */
static void pairs(struct events *events)
{
    uint32_t large = events_take(events, mib(530)), small = events_take(events, mib(270));
    for (int step = 0; step < 200; step++) {
        uint32_t first = events_take(events, mib(step % 2 ? 530 : 270)),
                 second = events_take(events, mib(step % 2 ? 270 : 530));
        if (step % 3 == 0) {
            events_give(events, large);
            large = events_take(events, mib(530));
        } else {
            events_give(events, small);
            small = events_take(events, mib(270 + step % 5));
        }
        events_give(events, first);
        events_give(events, second);
    }
    events_give(events, large);
    events_give(events, small);
}

/* Serving: the caches of many sequences, each of which is copied into a longer one every 16 tokens until it ends. */
static void serving(struct events *events)
{
    enum { SEQUENCES = 48, STEPS = 8000 };
    struct random random = {17};
    uint32_t block[SEQUENCES];
    uint64_t tokens[SEQUENCES], end[SEQUENCES];
    for (int i = 0; i < SEQUENCES; i++) {
        tokens[i] = random_between(&random, 16, 600);
        end[i] = tokens[i] + random_between(&random, 16, 3000);
        block[i] = events_take(events, tokens[i] * 28 * SG_KIB);
    }
    for (int step = 0; step < STEPS; step++) {
        int i = (int)random_below(&random, SEQUENCES);
        if (tokens[i] >= end[i]) {
            events_give(events, block[i]);
            tokens[i] = random_between(&random, 16, 600);
            end[i] = tokens[i] + random_between(&random, 16, 3000);
            block[i] = events_take(events, tokens[i] * 28 * SG_KIB);
        } else {
            tokens[i] += 16;
            uint32_t longer = events_take(events, tokens[i] * 28 * SG_KIB);
            events_give(events, block[i]);
            block[i] = longer;
        }
        uint32_t work = events_take(events, random_between(&random, 100, 4000) * SG_KIB);
        events_give(events, work);
    }
    for (int i = 0; i < SEQUENCES; i++)
        events_give(events, block[i]);
}

const struct adversary adversaries[] = {
    {"survivors", "one block of each page outlives the others", survivors, NULL},
    {"near_miss", "what was freed is asked for again, 512 bytes larger", near_miss, NULL},
    {"phases", "two phases of incommensurable sizes", phases, NULL},
    {"longer_sequences", "activations that grow by a few tokens a step", longer_sequences, NULL},
    {"heavy_tails", "heavy-tailed sizes and lifetimes", heavy_tails, NULL},
    {"runaway", "pytorch#123548, below max_split_size", runaway, "expandable_segments:True,max_split_size_mb:128"},
    {"runaway_large", "pytorch#123548, above max_split_size", runaway_large,
        "expandable_segments:True,max_split_size_mb:128"},
    {"logits", "logits of 17000, 19000, 20480 and 14500 tokens", logits, NULL},
    {"pairs", "pairs of 530 and 270 MiB", pairs, NULL},
    {"serving", "many caches that grow by being copied", serving, NULL},
};
const size_t adversary_count = sizeof adversaries / sizeof *adversaries;
