#include "config/conf_number.h"

#include "base/ascii.h"

#include <inttypes.h>

/* Digits of a number that are kept: a double holds as many, and gives them back. */
enum { REAL_DIGITS = 15 };
#define REAL_MOST UINT64_C(1000000000000000)

bool sg_conf_number_whole(const char *text, uint64_t *ret)
{
    uint64_t whole = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (!sg_ascii_digit(*text) || whole > UINT64_MAX / 10 - 1)
            return false;
        whole = whole * 10 + (uint64_t)(*text - '0');
    }
    *ret = whole;
    return true;
}

bool sg_conf_number_real(const char *text, double *ret)
{
    uint64_t mantissa = 0;
    double scale = 1;
    unsigned digits = 0, decimals = 0;
    bool point = false;
    for (; *text; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (!sg_ascii_digit(*text) || (!point && mantissa > 1000000000))
            return false;
        digits++;
        if (point && ++decimals > REAL_DIGITS)
            continue;
        /* Digits that a double cannot hold are passed over: they would not change it. */
        if (mantissa >= REAL_MOST / 10)
            continue;
        mantissa = mantissa * 10 + (uint64_t)(*text - '0');
        if (point)
            scale *= 10;
    }
    if (!digits)
        return false;
    *ret = (double)mantissa / scale;
    return true;
}

void sg_conf_number_add(struct sg_text *text, double value)
{
    /* More digits are tried until the number reads back as the same double: 1.02 needs two, 0.1 one. */
    double scale = 1;
    int digits = 0;
    uint64_t scaled = (uint64_t)(value + 0.5);
    while ((double)scaled / scale != value && digits < REAL_DIGITS && scaled < REAL_MOST) {
        scale *= 10;
        digits++;
        scaled = (uint64_t)(value * scale + 0.5);
    }
    uint64_t unit = (uint64_t)scale;
    if (digits)
        sg_text_add(text, "%" PRIu64 ".%0*" PRIu64, scaled / unit, digits, scaled % unit);
    else
        sg_text_add(text, "%" PRIu64, scaled);
}

void sg_conf_number_add_size(struct sg_text *text, uint64_t bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    while (bytes && bytes % 1024 == 0 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    sg_text_add(text, "%" PRIu64 "%s", bytes, units[unit]);
}
