/* Random programs: what nobody thought of. A program is a run of phases, each of which allocates and frees by a habit
   of its own over what the phases before it have left. */
#include "adversary.h"

#include <stdlib.h>

#include "random.h"
#include "size.h"

enum { BLOCKS_MOST = 1 << 14, PHASES_MOST = 12, STEPS_MOST = 400, PALETTE = 6 };

struct program {
    struct events *events;
    struct random random;
    uint64_t live, target;  /* bytes alive, and about how many there should be */
    uint64_t page;
    struct alive {
        uint32_t block;
        uint64_t bytes;
    } alive[BLOCKS_MOST];
    uint32_t count;
};

static void take(struct program *program, uint64_t bytes)
{
    if (program->count == BLOCKS_MOST || bytes == 0)
        return;
    program->alive[program->count++] = (struct alive){events_take(program->events, bytes), bytes};
    program->live += bytes;
}

/* Frees the block at `index`, keeping the others in the order of their allocation. */
static void give(struct program *program, uint32_t index)
{
    struct alive *alive = &program->alive[index];
    events_give(program->events, alive->block);
    program->live -= alive->bytes;
    program->count--;
    for (uint32_t i = index; i < program->count; i++)
        program->alive[i] = program->alive[i + 1];
}

static uint32_t any(struct program *program)
{
    return (uint32_t)random_below(&program->random, program->count);
}

/* A size of one of the kinds that matter: within a unit, within the small region, about a page, many pages. */
static uint64_t any_size(struct program *program)
{
    struct random *random = &program->random;
    uint64_t page = program->page;
    switch (random_below(random, 8)) {
    case 0:
        return random_between(random, 1, 1024);
    case 1:
        return random_between(random, 1, 64 * SG_KIB);
    case 2:
        return random_between(random, 60 * SG_KIB, 132 * SG_KIB);
    case 3:
        return random_between(random, 1, page);
    case 4: /* whole pages, and a unit more or less */
        return random_between(random, 1, 6) * page + random_below(random, 5) * 512 - 1024;
    case 5:
        return random_between(random, 1, 12 * page);
    case 6:
        return random_between(random, page, program->target / 3 + page);
    default:
        return page / 2 + random_below(random, 4) * 512;
    }
}

/* One survivor of each few blocks. */
static void comb(struct program *program)
{
    uint64_t bytes = any_size(program), every = random_between(&program->random, 2, 70);
    uint32_t first = program->count;
    for (uint64_t i = 0; i < 3 * every && program->live + bytes < program->target; i++)
        take(program, bytes);
    for (uint32_t i = first, n = 0; i < program->count; n++) {
        if (n % every)
            give(program, i);
        else
            i++;
    }
}

/* Sizes that repeat; what is freed is any block, the oldest, or the youngest. */
static void palette(struct program *program)
{
    uint64_t size[PALETTE], habit = random_below(&program->random, 3);
    for (int i = 0; i < PALETTE; i++)
        size[i] = any_size(program);
    for (uint64_t steps = random_between(&program->random, 10, STEPS_MOST); steps; steps--) {
        uint64_t bytes = size[random_below(&program->random, PALETTE)];
        while (program->count && program->live + bytes > program->target)
            give(program, habit == 0 ? any(program) : habit == 1 ? 0 : program->count - 1);
        take(program, bytes);
        if (program->count && random_below(&program->random, 3) == 0)
            give(program, any(program));
    }
}

/* Buffers that are copied into slightly larger ones. */
static void creep(struct program *program)
{
    uint64_t more = random_between(&program->random, 1, 200) * 512;
    for (uint64_t steps = random_between(&program->random, 10, STEPS_MOST); steps && program->count; steps--) {
        uint32_t index = any(program);
        uint64_t bytes = program->alive[index].bytes + more;
        if (bytes > program->target / 2)
            continue;
        take(program, bytes);
        give(program, index);
    }
}

/* A few very large blocks, which only fit where much is free. */
static void large(struct program *program)
{
    for (uint64_t steps = random_between(&program->random, 1, 20); steps; steps--) {
        uint64_t bytes = program->target / random_between(&program->random, 1, 6);
        while (program->count && program->live + bytes > program->target)
            give(program, any(program));
        take(program, bytes);
        if (random_below(&program->random, 2))
            give(program, program->count - 1);
    }
}

/* All blocks below, or above, a size go. */
static void sweep(struct program *program)
{
    uint64_t bound = any_size(program), below = random_below(&program->random, 2);
    for (uint32_t i = 0; i < program->count;) {
        if ((program->alive[i].bytes < bound) == below)
            give(program, i);
        else
            i++;
    }
}

void adversary_random(struct events *events, uint64_t seed, uint64_t page)
{
    static void (*const phases[])(struct program *program) = {comb, palette, palette, creep, large, sweep};
    struct program *program = calloc(1, sizeof *program);
    if (!program)
        abort();
    program->events = events;
    program->random.state = seed;
    program->page = page;
    program->target = page * random_between(&program->random, 8, 300);
    for (uint64_t left = random_between(&program->random, 2, PHASES_MOST); left; left--)
        phases[random_below(&program->random, sizeof phases / sizeof *phases)](program);
    while (program->count)
        give(program, program->count - 1);
    free(program);
}
