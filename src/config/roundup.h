/* The size of the block that a request becomes: PyTorch's rule, which regions, fixed segments and the replay of PyTorch's
   allocator share.

   A *unit* is 512 bytes; every block is a whole number of units. *Divisions* are the steps between two powers of two, from
   roundup_power2_divisions. They depend on the size of the request: each interval of 2^i to 2^(i+1) MiB has its own.

   Why steps: some programs ask for a little more each time. With steps the size is the same again, so the block that was
   freed fits. The price is the memory between the request and the step.

   Example, a request of 300 KiB, which is 307200 bytes:
     divisions 0    307200 is 600 units: the block has 307200 bytes
     divisions 4    the power below is 262144, a quarter of it 65536: the next multiple of that is 327680, which is 320 KiB
     divisions 8    steps of 32768: 327680 again
   A request of 1000 bytes becomes 1024 in each case, since a step is at least a unit. 1200 MiB with 4 divisions become
   1280 MiB. */
#ifndef SG_ROUNDUP_H
#define SG_ROUNDUP_H

#include <stdint.h>

#include "conf.h"
#include "base/size.h"
#include "base/wrap.h"

enum { SG_ROUNDUP_UNIT = 512 };

/* The largest size that divisions do not apply to: PyTorch leaves requests up to a unit a division alone. Bits that the
   product loses, where it is too large, are lost in PyTorch too. */
SG_WRAPS static inline uint64_t sg_roundup_least(uint64_t divisions)
{
    return SG_ROUNDUP_UNIT * divisions;
}

/* `bytes` (1 to 2^62) as a multiple of the unit or, where roundup_power2_divisions asks for it, of a step of 1/N
   between powers of two. With more divisions than can be told apart the step is the power itself, as it is in PyTorch
   (CUDACachingAllocator.cpp: round_size, roundup_power2_next_division). */
static inline uint64_t sg_roundup(const uint64_t divisions[SG_ROUNDUP_INTERVALS], uint64_t bytes)
{
    enum { MIB_LOG = 20 };
    /* Requests below 1 MiB take the divisions of interval 0, those above the last interval take the last ones. */
    unsigned log = 63 - (unsigned)__builtin_clzll(bytes), interval = log < MIB_LOG ? 0 : log - MIB_LOG;
    uint64_t count = divisions[interval < SG_ROUNDUP_INTERVALS ? interval : SG_ROUNDUP_INTERVALS - 1];
    uint64_t step = SG_ROUNDUP_UNIT;
    if (count > 1 && bytes > sg_roundup_least(count)) {
        uint64_t floor = UINT64_C(1) << log;
        step = count > floor ? floor : floor / count;
    }
    step = step < SG_ROUNDUP_UNIT ? SG_ROUNDUP_UNIT : step;
    return (bytes + step - 1) & ~(step - 1);
}

#endif
