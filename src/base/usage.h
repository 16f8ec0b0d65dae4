/* The gauges and totals of stats.def, and what an allocation and a free change of them. No lock is taken here. */
#ifndef SG_USAGE_H
#define SG_USAGE_H

#include <stdbool.h>
#include <stdint.h>

/* A number with its peak. */
struct sg_gauge {
    uint64_t now, peak;
};

static inline void sg_gauge_add(struct sg_gauge *gauge, uint64_t amount)
{
    gauge->now += amount;
    if (gauge->now > gauge->peak)
        gauge->peak = gauge->now;
}

static inline void sg_gauge_sub(struct sg_gauge *gauge, uint64_t amount)
{
    gauge->now -= amount;
}

static inline void sg_gauge_set(struct sg_gauge *gauge, uint64_t value)
{
    gauge->now = value;
    if (value > gauge->peak)
        gauge->peak = value;
}

struct sg_usage {
#define GAUGE(name, field, unit, text) struct sg_gauge field;
#define TOTAL(name, field, unit, text) uint64_t field;
#include "stats.def"
};

/* A block of `requested` bytes, `rounded` with rounding, is handed out. `small`: by the small region. */
static inline void sg_usage_allocate(struct sg_usage *usage, uint64_t requested, uint64_t rounded, bool small)
{
    sg_gauge_add(&usage->requested, requested);
    sg_gauge_add(&usage->allocated, rounded);
    sg_gauge_add(&usage->active, rounded);
    sg_gauge_add(&usage->allocations, 1);
    if (small)
        sg_gauge_add(&usage->small_allocated, rounded);
    usage->allocs++;
    usage->allocated_total += rounded;
}

/* Such a block is no longer the program's. It stays active, as others may still be using it. */
static inline void sg_usage_free(struct sg_usage *usage, uint64_t requested, uint64_t rounded, bool small)
{
    sg_gauge_sub(&usage->requested, requested);
    sg_gauge_sub(&usage->allocated, rounded);
    sg_gauge_sub(&usage->allocations, 1);
    if (small)
        sg_gauge_sub(&usage->small_allocated, rounded);
    usage->frees++;
    usage->freed_total += rounded;
}

#endif
