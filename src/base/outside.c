#include "outside.h"

static const struct {
    const char *key, *call, *refused;
} names[] = {
#define OUTSIDE(NAME, key, call, refused) [SEGALLOC_OUTSIDE_##NAME] = {#key, call, refused},
#include "outside.def"
};
_Static_assert(sizeof names / sizeof *names == SEGALLOC_OUTSIDE_COUNT, "each category has a row of outside.def");

const char *sg_outside_key(enum segalloc_outside what)
{
    return names[what].key;
}

const char *sg_outside_call(enum segalloc_outside what)
{
    return names[what].call;
}

const char *sg_outside_refused(enum segalloc_outside what)
{
    return names[what].refused;
}

enum segalloc_outside sg_outside_kind(uint64_t id)
{
    return id < SEGALLOC_OUTSIDE_COUNT ? (enum segalloc_outside)id : SEGALLOC_OUTSIDE_OTHER;
}

uint64_t sg_outside_sum(const struct sg_outside *outside)
{
    uint64_t sum = 0;
    for (int i = 0; i < SEGALLOC_OUTSIDE_COUNT; i++)
        sum += outside->bytes[i];
    return sum;
}

bool sg_outside_lags(const struct sg_outside *now)
{
    return now->bytes[SEGALLOC_OUTSIDE_POOLS] || now->bytes[SEGALLOC_OUTSIDE_POOLS_IDLE] ||
           now->bytes[SEGALLOC_OUTSIDE_POOLS_LEAVING] || now->bytes[SEGALLOC_OUTSIDE_GRAPHS] ||
           now->bytes[SEGALLOC_OUTSIDE_GRAPHS_IDLE] || now->bytes[SEGALLOC_OUTSIDE_MANAGED];
}

uint64_t sg_outside_stays(const struct sg_outside *outside)
{
    return sg_outside_sum(outside) - outside->bytes[SEGALLOC_OUTSIDE_MANAGED] -
           outside->bytes[SEGALLOC_OUTSIDE_POOLS_LEAVING];
}
