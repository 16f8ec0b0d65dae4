/* Fields of a row of RMM's CSV: numbers and addresses, and how a file spells them. A function takes a field from *at, up to `end`, and
   leaves *at behind it. False: it is no such field, and *at stays. Inline, since a trace has hundreds of thousands of rows.

   For example, "0x7f00,4096,(nil)" is the address 0x7f00, with no flag, and the decimal 4096. The stream is 0, with
   SEGALLOC_FLAG_NIL. */
#ifndef SG_RMM_FIELDS_H
#define SG_RMM_FIELDS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "segalloc/trace_format.h"

/* Decimal digits up to a comma or the end. Leaves *at behind the digits; false: none, or more than 64 bits. */
static inline bool sg_rmm_take_decimal(const unsigned char **at, const unsigned char *end, uint64_t *ret)
{
    /* 19 digits are less than 64 bits, so only digits behind those are checked for an overflow. */
    enum { SAFE_DIGITS = 19 };
    const unsigned char *p = *at, *safe = end - p > SAFE_DIGITS ? p + SAFE_DIGITS : end;
    uint64_t value = 0;
    while (p < safe && (unsigned)(*p - '0') < 10)
        value = value * 10 + (unsigned)(*p++ - '0');
    if (p == *at)
        return false;
    for (; p < end && (unsigned)(*p - '0') < 10; p++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (unsigned)(*p - '0'), &value))
            return false;
    *at = p;
    *ret = value;
    return true;
}

static const signed char sg_rmm_hex_digits[256] = {
    ['0'] = 1, ['1'] = 2, ['2'] = 3, ['3'] = 4, ['4'] = 5, ['5'] = 6, ['6'] = 7, ['7'] = 8, ['8'] = 9, ['9'] = 10,
    ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

/* Hexadecimal digits, in either case, up to 64 bits. */
static inline bool sg_rmm_take_hexadecimal(const unsigned char **at, const unsigned char *end, uint64_t *ret)
{
    const unsigned char *p = *at;
    uint64_t value = 0;
    int digit;
    while (p < end && (digit = sg_rmm_hex_digits[*p]) != 0) {
        if (value >> 60)
            return false;
        value = value << 4 | (unsigned)(digit - 1);
        p++;
    }
    if (p == *at)
        return false;
    *at = p;
    *ret = value;
    return true;
}

static inline bool sg_rmm_is_nil(const unsigned char *p, const unsigned char *end)
{
    return end - p >= 5 && !memcmp(p, "(nil)", 5);
}

/* Six decimal digits, without a branch for each. */
static inline bool sg_rmm_six_digits(const unsigned char *p, uint32_t *ret)
{
    uint32_t value = 0, wrong = 0;
    for (int i = 0; i < 6; i++) {
        uint32_t digit = p[i] - (uint32_t)'0';
        wrong |= digit > 9;
        value = value * 10 + digit;
    }
    *ret = value;
    return !wrong;
}

/* The address, and how it is spelt: the row's own flags, and those that hold for the thread. */
static inline bool sg_rmm_parse_pointer(const unsigned char **at, const unsigned char *end, struct segalloc_trace_record *row,
                                 uint8_t *ret_style, uint8_t *ret_style_seen)
{
    const unsigned char *p = *at;
    *ret_style = 0;
    *ret_style_seen = SEGALLOC_FLAG_BARE_HEX;
    if (sg_rmm_is_nil(p, end)) {
        row->flags |= SEGALLOC_FLAG_NIL;
        *ret_style_seen = 0;
        *at = p + 5;
        return true;
    }
    if (end - p > 2 && p[0] == '0' && (p[1] | 0x20) == 'x')
        p += 2;
    else
        *ret_style = SEGALLOC_FLAG_BARE_HEX;
    if (!sg_rmm_take_hexadecimal(&p, end, &row->id))
        return false;
    *at = p;
    return true;
}

/* The last field: decimal, or a pointer. Digits that go on with a letter are hexadecimal without 0x. */
static inline bool sg_rmm_parse_stream(const unsigned char **at, const unsigned char *end, uint64_t *ret, uint8_t *ret_style)
{
    const unsigned char *p = *at;
    *ret_style = 0;
    if (sg_rmm_is_nil(p, end)) {
        *ret = 0;
        *ret_style = SEGALLOC_FLAG_NIL;
        *at = p + 5;
        return true;
    }
    if (end - p > 2 && p[0] == '0' && (p[1] | 0x20) == 'x') {
        p += 2;
        *ret_style = SEGALLOC_FLAG_HEX_STREAM;
    } else if (sg_rmm_take_decimal(&p, end, ret) && (p == end || !sg_rmm_hex_digits[*p])) {
        *at = p;
        return true;
    } else {
        p = *at;
        *ret_style = SEGALLOC_FLAG_BARE_HEX;
    }
    if (!sg_rmm_take_hexadecimal(&p, end, ret))
        return false;
    *at = p;
    return true;
}

#endif
