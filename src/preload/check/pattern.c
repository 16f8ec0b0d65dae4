/* Numbers are mixed by the finalizer of splitmix64, so that words of neighbouring frees differ in all bytes. */
#include "check/pattern.h"

#include "base/wrap.h"

SG_WRAPS static uint64_t pattern_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The top bits are set apart from those of common values: small integers, floats around 1 and zeros. */
uint32_t sg_pattern_word(uint64_t number)
{
    return (uint32_t)(pattern_mix(number) & 0x00ffffff) | 0xa5000000;
}

uint16_t sg_pattern_stamp(uint32_t word, unsigned slot)
{
    return (uint16_t)(pattern_mix((uint64_t)slot << 32 | word) | 0x8000);
}

uint64_t sg_fill_stamp_at(const struct sg_fill *fill, unsigned slot)
{
    return fill->room - SG_TAIL + SG_TAIL_STAMPS + (uint64_t)fill->place * SG_STAMPS + (uint64_t)slot * 2;
}

void sg_fill_plan(uint64_t room, bool has_tail, bool thorough, uint64_t seed, struct sg_fill *ret)
{
    unsigned place = ret->place;
    uint64_t body = has_tail ? room - SG_TAIL : room;
    *ret = (struct sg_fill){.room = room, .has_tail = has_tail, .has_body = true,
        .whole = thorough || body <= SG_FILL_WHOLE, .word = sg_pattern_word(seed), .place = place};
    if (ret->whole)
        return;
    /* Equally spaced, so that one call of the driver sets them all; a window's width is free at both ends. */
    ret->windows = SG_WINDOWS - 1;
    ret->pitch = (body - SG_WINDOW) / SG_WINDOWS & ~(uint64_t)3;
    ret->first = (SG_WINDOW + pattern_mix(~seed) % (ret->pitch - SG_WINDOW)) & ~(uint64_t)3;
}

static bool fill_has(const struct sg_fill *fill, uint64_t offset)
{
    if (!fill->has_body)
        return false;
    if (fill->whole || offset < SG_WINDOW || offset >= sg_fill_body(fill) - SG_WINDOW)
        return true;
    if (offset < fill->first)
        return false;
    uint64_t from = offset - fill->first;
    return from / fill->pitch < fill->windows && from % fill->pitch < SG_WINDOW;
}

bool sg_fill_reaches(const struct sg_fill *fill, uint64_t offset, uint64_t bytes)
{
    uint64_t end = offset + bytes, body = sg_fill_body(fill), row = 0;
    if (fill->has_tail && end > body)
        return true;
    if (!fill->has_body || fill->whole || offset < SG_WINDOW || end > body - SG_WINDOW)
        return fill->has_body;
    if (offset >= fill->first + SG_WINDOW) /* the first window that ends behind it */
        row = (offset - fill->first - SG_WINDOW) / fill->pitch + 1;
    return row < fill->windows && fill->first + row * fill->pitch < end;
}

uint64_t sg_fill_stamps_at(const struct sg_fill *fill, uint64_t offset)
{
    uint64_t first = fill->has_tail ? sg_fill_stamp_at(fill, 0) : UINT64_MAX;
    return offset < first || offset >= first + SG_STAMPS ? 0 : fill->stamps & UINT64_C(3) << (offset - first) / 2;
}

uint32_t sg_fill_expected(const struct sg_fill *fill, uint64_t offset, uint32_t *ret)
{
    uint64_t tail = fill->room - SG_TAIL, stamps = sg_fill_stamps_at(fill, offset);
    *ret = fill->word;
    if (!fill->has_tail || offset < tail)
        return fill_has(fill, offset) ? UINT32_MAX : 0;
    if (offset < tail + SG_TAIL_STAMPS || fill->has_body)
        return UINT32_MAX;
    uint32_t mask = 0;
    *ret = 0;
    for (; stamps; stamps &= stamps - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(stamps), shift = slot % 2 * 16;
        mask |= UINT32_C(0xffff) << shift;
        *ret |= (uint32_t)sg_pattern_stamp(fill->word, slot) << shift;
    }
    return mask;
}
