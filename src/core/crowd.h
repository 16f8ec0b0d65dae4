/* Crowds: sizes of which many blocks are alive at once, as the caches of all layers are, or what a forward pass keeps for each
   layer. Such blocks are likely to stay while the large ones around them come and go, and where they stand between those each
   keeps parts of two pages from everybody. So, where memory is short, they get a region of their own. docs/design.md has what
   it saves and what it costs.

   A size class (creep.h) is a crowd while SG_CROWD_LIVE of its blocks live that hold SG_CROWD_TOGETHER. A block beyond
   SG_CROWD_LARGEST is none's: it loses little by parts of pages, and much would have to move for it. */
#ifndef SG_CROWD_H
#define SG_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#include "creep.h"

enum {
    SG_CROWD_LIVE = 6,
    SG_CROWD_TOGETHER = (16 << 20) / 512, /* units */
    SG_CROWD_LARGEST = (32 << 20) / 512,  /* units */
    SG_CROWD_SHARE = 256                  /* a region may strand a page: not before that is so small a part of what is held */
};

struct sg_crowd {
    uint32_t live[SG_CREEP_CLASSES]; /* blocks, by the class of what was asked for */
};

/* Whether a block of `units` would be one of a crowd. */
static inline bool sg_crowd_has(const struct sg_crowd *crowd, uint32_t class, uint32_t units)
{
    uint32_t live = crowd->live[class];
    return live >= SG_CROWD_LIVE && class && units <= SG_CROWD_LARGEST && (uint64_t)live * units >= SG_CROWD_TOGETHER;
}

#endif
