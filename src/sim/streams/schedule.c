#include "streams/schedule.h"

#include <limits.h>

#include "base/wrap.h"
#include "sim.h"

/* Moods, chosen by the low bits of the seed: the extremes find what mixtures only find with luck. */
enum mood { LAZY, EAGER, SOME, MANY, MOODS };

static struct {
    bool on;
    enum mood mood;
    uint64_t state;
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

bool sim_schedule_strays(void)
{
    return schedule.mood > EAGER && sim_schedule_random(2);
}

uint64_t sim_schedule_allocations(void)
{
    return schedule.allocations;
}

void sim_schedule_count_allocation(void)
{
    schedule.allocations++;
}
