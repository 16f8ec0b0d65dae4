/* Sizes that creep: a buffer that is grown by allocating a slightly larger one and freeing the old one, again and
   again, as caches of keys and values are while text is generated. Each size is asked for once, so no freed range ever
   fits the next request exactly, and what is left between the blocks is of no use to anybody. Such requests are rounded
   up to a step of 1/64, which lets a freed range serve the next buffers of a crowd that grows together.

   A size class creeps when SCORE_ON frees in a row came right after an allocation a little larger; a free of just the
   size allocated last speaks against it. docs/design.md has what it saves and what it costs. */
#ifndef SG_CREEP_H
#define SG_CREEP_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SG_CREEP_CLASSES = 32 * 32, /* 32 to each power of two: 1.5 to 3 % wide */
    SG_CREEP_LEAST = 128,       /* units: below 64 KiB there is nothing to gain */
    SG_CREEP_ON = 8,
    SG_CREEP_MOST = 15,
    SG_CREEP_STEPS = 64
};

struct sg_creep {
    struct {
        uint32_t last; /* units allocated last in this class */
        uint32_t score;
    } class[SG_CREEP_CLASSES];
};

/* The class of a size; 0: it is too small for any. */
static inline uint32_t sg_creep_class(uint32_t units)
{
    if (units < SG_CREEP_LEAST)
        return 0;
    uint32_t high = 31 - (uint32_t)__builtin_clz(units);
    return high * 32 + (units >> (high - 5) & 31);
}

/* Notes an allocation in a class and returns what to allocate for it, at least `units`; no more if not to `round`. */
static inline uint32_t sg_creep_allocate(struct sg_creep *creep, uint32_t class, uint32_t units, bool round)
{
    if (class == 0)
        return units;
    creep->class[class].last = units;
    if (creep->class[class].score < SG_CREEP_ON || !round)
        return units;
    uint32_t step = (UINT32_C(1) << (31 - (uint32_t)__builtin_clz(units))) / SG_CREEP_STEPS;
    return (units + step - 1) / step * step;
}

/* Notes a free of a block for which `units` were asked for. */
static inline void sg_creep_free(struct sg_creep *creep, uint32_t class, uint32_t units)
{
    if (class == 0)
        return;
    uint32_t last = creep->class[class].last, score = creep->class[class].score;
    if (last == units)
        creep->class[class].score = score ? score - 1 : 0;
    else if (last > units && score < SG_CREEP_MOST)
        creep->class[class].score = score + 1;
}

#endif
