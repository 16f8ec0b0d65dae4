#include "plain_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

size_t sg_utf8_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = at[0] < 0x80                    ? 1
                    : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                    : (at[0] & 0xf0) == 0xe0        ? 3
                    : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                    : 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    /* Longer than need be, or one half of a UTF-16 pair: RFC 3629 allows neither. */
    bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    bool surrogate = (at[0] == 0xed && at[1] >= 0xa0) || (at[0] == 0xf4 && at[1] >= 0x90);
    return length >= 3 && (overlong || surrogate) ? 0 : length;
}

/* The code point of a whole sequence: the bits that each byte has behind its marks, six from each byte after the first. */
static uint32_t utf8_code_point(const char *text, size_t length)
{
    static const unsigned char first[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char)text[0] & first[length];
    for (size_t i = 1; i < length; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    return code;
}

/* Source of the ranges: Unicode 15, general categories Cc, Zl and Zp, and the bidirectional formatting characters. */
static bool code_is_plain(uint32_t code)
{
    bool control = code < 0x20 || (code >= 0x7f && code < 0xa0), separator = code == 0x2028 || code == 0x2029;
    bool turns = code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                 (code >= 0x2066 && code <= 0x2069);
    return !control && !separator && !turns;
}

char *sg_plain_text(char *text)
{
    char *to = text;
    for (const char *at = text; *at;) {
        size_t length = sg_utf8_length(at);
        bool plain = length && code_is_plain(utf8_code_point(at, length));
        if (plain) {
            memmove(to, at, length);
            to += length;
        } else {
            *to++ = '?';
        }
        at += length ? length : 1;
    }
    *to = '\0';
    return text;
}
