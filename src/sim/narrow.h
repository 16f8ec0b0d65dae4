/* Floats of 16 bits: IEEE 754's binary16, which CUDA calls half, and bfloat16, the upper half of a float. For example, 3.0 is
   0x4200 as the one and 0x4040 as the other. The value becomes the nearest one, of two as near the even one. */
#ifndef SIM_NARROW_H
#define SIM_NARROW_H

#include <stdint.h>
#include <string.h>

#include "base/wrap.h"

static inline float narrow_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t narrow_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float narrow_from_bfloat16(uint16_t bits)
{
    return narrow_of_bits((uint32_t)bits << 16);
}

SG_WRAPS static inline uint16_t narrow_to_bfloat16(float value)
{
    uint32_t bits = narrow_bits_of(value);
    if (value != value)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Scaled by a power of two between the two exponents' ranges, as floats of 32 bits. */
static inline float narrow_from_float16(uint16_t bits)
{
    uint32_t magnitude = bits & 0x7fff;
    float value = magnitude >= 0x7c00 ? narrow_of_bits(0x7f800000 | (magnitude & 0x3ff) << 13)
                                      : narrow_of_bits(magnitude << 13) * 0x1p112f;
    return bits & 0x8000 ? -value : value;
}

static inline uint16_t narrow_to_float16(float value)
{
    uint32_t bits = narrow_bits_of(value), sign = bits >> 16 & 0x8000;
    float magnitude = narrow_of_bits(bits & 0x7fffffff);
    if (!(magnitude < 65520.0f))
        return (uint16_t)(sign | (magnitude == magnitude ? 0x7c00 : 0x7e00));
    uint32_t scaled = narrow_bits_of(magnitude * 0x1p-112f);
    return (uint16_t)(sign | (scaled + 0xfff + (scaled >> 13 & 1)) >> 13);
}

#endif
