/* The gauges and totals of stats.def as the core keeps them, and the changes that an allocation and a free make.

   A *gauge* is a level with its peak; a *total* only grows. Two calls keep the sums right: every block that is handed out
   passes sg_usage_allocate() once, and sg_usage_free() once. Other files change pending, reserved and the like.

   Example, a request of 1000 bytes in the small region:
     sg_usage_allocate(1000, 1024, small)   requested + 1000; allocated, active, small_allocated + 1024; allocs + 1
     sg_usage_free(1000, 1024, small)       requested - 1000; allocated, small_allocated - 1024; frees + 1
   `active` stays 1024 until the memory is free for a stream again.

   No lock is taken here: the caller holds the one that guards the structure, a device's `lock`. */
#ifndef SG_USAGE_H
#define SG_USAGE_H

#include <stdbool.h>
#include <stdint.h>

/* A number with the highest value that it has had. */
struct sg_gauge {
    uint64_t now, peak;
};

/* Adds to the number, subtracts from it, or sets it; the peak follows. */
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

/* A gauge for each GAUGE row, a number for each TOTAL row, by the field that the row names. */
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
