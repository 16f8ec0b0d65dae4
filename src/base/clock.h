/* A monotonic clock that is cheap enough to ask twice on every free: the processor's time stamp counter where it runs
   at a constant rate on all cores, scaled by the system's clock over its first 10 ms; the system's clock otherwise. For
   durations, not for dates: it may stray from CLOCK_MONOTONIC by a few parts in 10,000. */
#ifndef SG_CLOCK_H
#define SG_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some moment of the process. Thread-safe, no locks. */
uint64_t sg_clock_ns(void);

#endif
