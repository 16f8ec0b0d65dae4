/* A level over the length of a trace, in a fixed number of steps: of each the most that there was in it. How long the
   trace is need not be known before. */
#ifndef SG_OVER_TIME_H
#define SG_OVER_TIME_H

#include <stdint.h>

enum { SG_OVER_TIME_STEPS = 128 };

struct sg_over_time {
    uint64_t width; /* events of a step; 0: nothing was noted */
    uint32_t used;  /* steps */
    uint64_t most[SG_OVER_TIME_STEPS];
};

/* The level after an event, which is counted from 1 and never less than before. */
void sg_over_time_note(struct sg_over_time *series, uint64_t event, uint64_t level);

#endif
