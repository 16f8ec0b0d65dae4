/* How large a block a request becomes: PyTorch's rule, which regions, fixed segments and the replay of PyTorch's
   allocator share. */
#ifndef SG_ROUNDUP_H
#define SG_ROUNDUP_H

#include <stdint.h>

#include "conf.h"
#include "base/size.h"
#include "base/wrap.h"

enum { SG_ROUNDUP_UNIT = 512 };

/* What the product loses where it is too large is lost in PyTorch too. */
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
