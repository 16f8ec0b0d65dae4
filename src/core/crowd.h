/* Crowds: sizes of which many blocks are alive at once, as the caches of all layers are, or what a forward pass keeps
   for each layer. Such blocks are likely to stay while the large ones around them come and go, and where they stand
   between those each keeps parts of two pages from everybody. So, where memory is short, they get regions of their own:
   one for each lane, which is for sizes that are alike. What one of them leaves the next one fits, and what is made for
   every layer in turn dies together and leaves whole pages. Sizes twice as large share a lane, since two of one fit
   where one of the other was. docs/design.md has what it saves and what it costs.

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
    SG_CROWD_LANES = 8,                   /* also: any of them */
    SG_CROWD_SHARE = 256                  /* a region may strand a page: not before that is so small a part of what is
                                             held */
};

struct sg_crowd {
    uint32_t live[SG_CREEP_CLASSES]; /* blocks, by the class of what was asked for */
};

/* The lane of a size class: an eighth of an octave wide. */
static inline uint8_t sg_crowd_lane(uint32_t class)
{
    return (uint8_t)(class / (32 / SG_CROWD_LANES) % SG_CROWD_LANES);
}

/* Whether a block of `units` would be one of a crowd. */
static inline bool sg_crowd_has(const struct sg_crowd *crowd, uint32_t class, uint32_t units)
{
    uint32_t live = crowd->live[class];
    return live >= SG_CROWD_LIVE && class && units <= SG_CROWD_LARGEST && (uint64_t)live * units >= SG_CROWD_TOGETHER;
}

#endif
