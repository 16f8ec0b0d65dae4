#include "cost.h"

#include <string.h>

/* The fastest round counts: what else runs only adds. */
enum { ROUNDS = 3 };

void sg_cost_assume(struct sg_cost cost[SG_COST_CALLS])
{
    static const struct sg_cost assumed[] = {
#define COST(call, call_ns, handle_ns) {call_ns, handle_ns},
#include "cost.def"
    };
    memcpy(cost, assumed, sizeof assumed);
}

/* One round: times of all kinds of calls. */
struct round {
    uint64_t ns[SG_COST_CALLS]; /* of the calls of one kind together */
};

/* A clock, and the moment from which a lap counts. */
struct stopwatch {
    uint64_t (*now_ns)(void);
    uint64_t since;
};

/* Nanoseconds since the lap before. */
static uint64_t stopwatch_lap(struct stopwatch *watch)
{
    uint64_t now = watch->now_ns(), ns = now - watch->since;
    watch->since = now;
    return ns;
}

/* Releases all pages, also behind one that fails. */
static bool cost_release_pages(struct sg_pages *pages, const CUmemGenericAllocationHandle *page, uint32_t count)
{
    bool fine = true;
    for (uint32_t i = 0; i < count; i++)
        fine = sg_pages_release(pages, page[i]) == CUDA_SUCCESS && fine;
    return fine;
}

/* Makes `count` pages of `size` bytes, maps them at `address`, and takes all back. False: the driver refused, and nothing
   is left. */
static bool cost_time_round(struct sg_pages *pages, CUdeviceptr address, uint64_t size, uint32_t count,
    struct stopwatch watch, struct round *ret)
{
    CUmemGenericAllocationHandle page[SG_COST_PAGES];
    uint32_t made = 0, mapped = 0;
    watch.since = watch.now_ns();
    while (made < count && sg_pages_create(pages, size, &page[made]) == CUDA_SUCCESS)
        made++;
    ret->ns[SG_COST_create] = stopwatch_lap(&watch);
    /* Whatever was made is taken back, also when a call in the middle has failed. */
    while (mapped < made && sg_pages_map(pages, address + mapped * size, size, page[mapped]) == CUDA_SUCCESS)
        mapped++;
    ret->ns[SG_COST_map] = stopwatch_lap(&watch);
    bool fine = mapped == count && sg_pages_set_access(pages, address, count * size, 0) == CUDA_SUCCESS;
    ret->ns[SG_COST_set_access] = stopwatch_lap(&watch);
    if (mapped)
        fine = sg_pages_unmap(pages, address, mapped * size) == CUDA_SUCCESS && fine;
    ret->ns[SG_COST_unmap] = stopwatch_lap(&watch);
    fine = cost_release_pages(pages, page, made) && fine;
    ret->ns[SG_COST_release] = stopwatch_lap(&watch);
    return fine;
}

/* Keeps the fastest time of each kind; `first`: there is none yet. */
static void round_keep_least(struct round *best, const struct round *round, bool first)
{
    for (int call = 0; call < SG_COST_CALLS; call++)
        if (first || round->ns[call] < best->ns[call])
            best->ns[call] = round->ns[call];
}

static uint32_t cost_of_32_bits(uint64_t ns)
{
    return ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

/* The two numbers of a kind of call, from the times over 1 and over 16 handles. Calls with one handle each do not tell the
   two apart. Noise may make 16 look cheaper than 1: then a handle costs nothing. */
static struct sg_cost cost_fit(enum sg_cost_call call, const struct round *one, const struct round *many)
{
    uint64_t least = one->ns[call], most = many->ns[call];
    if (call != SG_COST_set_access && call != SG_COST_unmap)
        return (struct sg_cost){0, cost_of_32_bits(most / SG_COST_PAGES)};
    uint64_t handle = most > least ? (most - least) / (SG_COST_PAGES - 1) : 0;
    return (struct sg_cost){cost_of_32_bits(least > handle ? least - handle : 0), cost_of_32_bits(handle)};
}

bool sg_cost_measure(struct sg_pages *pages, uint64_t page, uint64_t (*now_ns)(void), struct sg_cost ret[SG_COST_CALLS])
{
    struct round one = {{0}}, many = {{0}}, round;
    /* Rounds of 1 and of 16 pages alternate, so that a slow moment of the machine meets both. */
    const struct stopwatch watch = {now_ns, 0};
    CUdeviceptr address;
    bool fine = true;
    if (sg_pages_answered(pages, sg_pages_reserve(pages, SG_COST_PAGES * page, 0, &address)) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < ROUNDS && fine; i++) {
        fine = cost_time_round(pages, address, page, 1, watch, &round);
        round_keep_least(&one, &round, i == 0);
        fine = fine && cost_time_round(pages, address, page, SG_COST_PAGES, watch, &round);
        round_keep_least(&many, &round, i == 0);
    }
    fine = pages->driver->address_free(address, SG_COST_PAGES * page) == CUDA_SUCCESS && fine;
    for (int call = 0; call < SG_COST_CALLS && fine; call++)
        ret[call] = cost_fit((enum sg_cost_call)call, &one, &many);
    return fine;
}
