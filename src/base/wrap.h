/* Arithmetic that is meant to wrap.

   All other arithmetic is not: `./check --integers` builds with clang's sanitizers for it. A number that wraps anywhere but
   in a function marked SG_WRAPS fails the test in which it happens. So a size that overflows is found, while a hash or a
   sequence number may wrap here.

   Examples: sg_hash(1) is 0x9e3779b97f4a7c15. A 32-bit counter at 1 is sg_ahead32() = 2 ahead of one at 4294967295. In
   a table of 8 places, place 1 is sg_steps_round() = 2 behind place 7, round the end. */
#ifndef SG_WRAP_H
#define SG_WRAP_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__clang__)
#define SG_WRAPS __attribute__((no_sanitize("unsigned-integer-overflow", "unsigned-shift-base")))
#else
#define SG_WRAPS
#endif

/* Fibonacci hashing, for keys whose low bits are alike, as those of addresses are: the upper bits are the best ones. */
SG_WRAPS static inline uint64_t sg_hash(uint64_t key)
{
    return key * UINT64_C(0x9e3779b97f4a7c15);
}

/* One step of FNV-1a (Fowler, Noll, Vo), from SG_FNV_BASIS on. `value` is a byte there; here it may be a word. */
#define SG_FNV_BASIS UINT64_C(0xcbf29ce484222325)
SG_WRAPS static inline uint64_t sg_fnv(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

/* The next pseudo-random number of splitmix64 (Steele, Lea and Flood, 2014); *state is the seed at first. */
SG_WRAPS static inline uint64_t sg_splitmix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* True if more than one bit is set. */
SG_WRAPS static inline bool sg_has_several_bits(uint64_t bits)
{
    return (bits & (bits - 1)) != 0;
}

/* How far a counter that wraps is ahead of another; negative: it is behind. Right as long as they are less than half the
   range apart. */
SG_WRAPS static inline int32_t sg_ahead32(uint32_t counter, uint32_t other)
{
    return (int32_t)(counter - other);
}
SG_WRAPS static inline int64_t sg_ahead64(uint64_t counter, uint64_t other)
{
    return (int64_t)(counter - other);
}

/* Steps forward from one place of a table to another, round its end. `size` is the number of places, a power of two. */
SG_WRAPS static inline uint64_t sg_steps_round(uint64_t from, uint64_t to, uint64_t size)
{
    return (to - from) & (size - 1);
}

#endif
