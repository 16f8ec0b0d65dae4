/* Two monotonic clocks: a coarse one that is cheap enough for two readings in every free, and an exact one.

   The coarse clock stands still for a tick of the kernel's, 1 to 4 ms (CONFIG_HZ of 1000 to 250). A single short duration
   by it is therefore 0 or a tick, while the sum of many is right. A wait of length d falls across the end of a tick with
   probability d / tick, and then counts as a whole tick.

   Example, a tick of 4 ms. 4000 frees wait 1 us each, at moments spread evenly. One of them in 4000 is caught by the end
   of a tick and counts 4 ms; the others count 0. The sum is 4 ms, which is what they waited.

   Neither clock runs backwards, and both go on where the wall clock is set. No lock, no errno. */
#ifndef SG_CLOCK_H
#define SG_CLOCK_H

#include <stdint.h>

/* Nanoseconds since an unspecified moment, by CLOCK_MONOTONIC_COARSE. 6 ns a call where CLOCK_MONOTONIC takes 22 and the time stamp counter 10 (Xeon,
   KVM). */
uint64_t sg_clock_coarse_ns(void);

/* Nanoseconds since the same moment, exactly, by CLOCK_MONOTONIC: for measurements and for deadlines, which are rare. */
uint64_t sg_clock_ns(void);

#endif
