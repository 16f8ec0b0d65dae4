#include "streams/schedule.h"

#include <limits.h>

#include "base/wrap.h"
#include "sim.h"

/* Moods, chosen by the low bits of the seed: the extremes find what mixtures only find with luck. APART is every second seed of
   SOME and MANY. Some streams do all at once, and the others nothing before somebody waits, as behind a long kernel. */
enum mood { LAZY, EAGER, SOME, MANY, MOODS, APART };

static struct {
    bool on;
    enum mood mood;
    uint64_t state, seed;
    int64_t run_ahead; /* allocations; negative: by mood */
    uint64_t allocations;
} schedule = {.run_ahead = -1};

bool sim_scheduled(void)
{
    return schedule.on;
}

SG_WRAPS void sim_schedule_start(uint64_t seed, int64_t run_ahead)
{
    schedule.on = true;
    schedule.mood = (enum mood)(seed % MOODS);
    if (schedule.mood > EAGER && seed / MOODS % 2)
        schedule.mood = APART;
    schedule.seed = seed;
    schedule.state = sg_hash(seed) + 1;
    schedule.run_ahead = run_ahead;
}

unsigned sim_schedule_random(unsigned count)
{
    return (unsigned)(sg_splitmix(&schedule.state) % count);
}

unsigned sim_schedule_appetite(void)
{
    if (schedule.run_ahead >= 0)
        return UINT_MAX;
    switch (schedule.mood) {
    case LAZY:
        return 0;
    case EAGER:
    case APART:
        return UINT_MAX;
    case SOME:
        return sim_schedule_random(8) ? 0 : sim_schedule_random(4);
    default:
        return sim_schedule_random(3);
    }
}

bool sim_schedule_due(uint64_t allocated)
{
    return schedule.run_ahead < 0 || schedule.allocations - allocated >= (uint64_t)schedule.run_ahead;
}

/* Streams that are made one after the other are drawn apart from each other: a product alone never holds a single one of six. */
SG_WRAPS bool sim_schedule_holds(uint64_t stream)
{
    uint64_t state = sg_hash(schedule.seed) + stream;
    return schedule.mood == APART && sg_splitmix(&state) >> 63;
}

enum sim_strays sim_schedule_strays(void)
{
    if (schedule.mood == APART)
        return SIM_STRAYS_DUE;
    return schedule.mood > EAGER && sim_schedule_random(2) ? SIM_STRAYS_ANY : SIM_STRAYS_NONE;
}

uint64_t sim_schedule_allocations(void)
{
    return schedule.allocations;
}

void sim_schedule_count_allocation(void)
{
    schedule.allocations++;
}
