#include "outside_levels.h"

/* How far a is above b; 0: it is not. */
static uint64_t bytes_above(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* The category that has risen most between two states. Managed memory, idle and leaving memory of pools are left out, since
   no call has asked for those. */
static struct sg_outside_change outside_change_of(const struct sg_outside *before, const struct sg_outside *after)
{
    struct sg_outside_change change = {.what = SEGALLOC_OUTSIDE_OTHER};
    for (int i = 0; i < SEGALLOC_OUTSIDE_COUNT; i++) {
        uint64_t rise = bytes_above(after->bytes[i], before->bytes[i]);
        bool leaves = i == SEGALLOC_OUTSIDE_MANAGED || i == SEGALLOC_OUTSIDE_POOLS_IDLE || i == SEGALLOC_OUTSIDE_POOLS_LEAVING;
        if (leaves || rise <= change.bytes)
            continue;
        change.what = (enum segalloc_outside)i;
        change.bytes = rise;
    }
    change.from_pools = after->bytes[SEGALLOC_OUTSIDE_POOLS] > before->bytes[SEGALLOC_OUTSIDE_POOLS];
    return change;
}

/* Idle memory of pools. An allocation takes from it what the recorded one took, as far as it is there. */
static void outside_follow_idle(struct sg_outside_levels *levels)
{
    const uint64_t *before = levels->now.bytes, *after = levels->read.bytes;
    /* Example: pools had 4 GiB idle when recorded, 1 GiB here. An allocation of 2 GiB took 2 of the idle 4; here it takes
       the 1 that there is, and 1 GiB is new. */
    uint64_t used = bytes_above(after[SEGALLOC_OUTSIDE_POOLS], before[SEGALLOC_OUTSIDE_POOLS]);
    uint64_t fell = bytes_above(before[SEGALLOC_OUTSIDE_POOLS_IDLE], after[SEGALLOC_OUTSIDE_POOLS_IDLE]);
    uint64_t rose = bytes_above(after[SEGALLOC_OUTSIDE_POOLS_IDLE], before[SEGALLOC_OUTSIDE_POOLS_IDLE]);
    levels->idle = bytes_above(levels->idle, fell < used ? fell : used) + rose;
    if (levels->idle > after[SEGALLOC_OUTSIDE_POOLS_IDLE])
        levels->idle = after[SEGALLOC_OUTSIDE_POOLS_IDLE];
}

bool sg_outside_levels_read(struct sg_outside_levels *levels, const struct segalloc_trace_record *record,
    struct sg_outside_change *ret)
{
    if (record->id < SEGALLOC_OUTSIDE_COUNT)
        levels->read.bytes[record->id] = record->size;
    else
        levels->read.bytes[SEGALLOC_OUTSIDE_OTHER] = record->size; /* of a later version */
    if (!(record->flags & SEGALLOC_FLAG_LAST))
        return false;
    *ret = outside_change_of(&levels->now, &levels->read);
    outside_follow_idle(levels);
    levels->now = levels->read;
    levels->known = true;
    return true;
}

uint64_t sg_outside_levels_least(const struct sg_outside_levels *levels)
{
    return sg_outside_stays(&levels->now) - levels->now.bytes[SEGALLOC_OUTSIDE_POOLS_IDLE];
}

uint64_t sg_outside_levels_bytes(const struct sg_outside_levels *levels)
{
    return sg_outside_levels_least(levels) + levels->idle;
}
