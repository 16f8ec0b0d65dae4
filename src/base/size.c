#include "size.h"

#include "ascii.h"

#include <stdio.h>

/* The power of two that a unit stands for: 30 for "GiB". False: it is no unit. */
static bool size_unit_shift(const char *unit, unsigned *ret)
{
    static const char letters[] = "kmgt";
    if (*unit == '\0' || sg_ascii_same(unit, "b")) {
        *ret = 0;
        return true;
    }
    const char *rest = unit + 1;
    if (*rest != '\0' && !sg_ascii_same(rest, "ib") && !sg_ascii_same(rest, "b"))
        return false;
    for (unsigned i = 0; letters[i]; i++) {
        if (letters[i] == sg_ascii_lower(*unit)) {
            *ret = 10 * (i + 1);
            return true;
        }
    }
    return false;
}

bool sg_size_parse(const char *text, uint64_t *ret)
{
    while (*text == ' ')
        text++;
    uint64_t whole = 0;
    bool digits = false;
    for (; sg_ascii_digit(*text); text++, digits = true) {
        if (whole > (INT64_MAX - 9) / 10) /* one more digit would not fit */
            return false;
        whole = whole * 10 + (uint64_t)(*text - '0');
    }
    double fraction = 0, scale = 0.1;
    if (*text == '.') {
        for (text++; sg_ascii_digit(*text); text++, scale /= 10, digits = true)
            fraction += scale * (*text - '0');
    }
    while (*text == ' ')
        text++;
    unsigned shift;
    if (!digits || !size_unit_shift(text, &shift) || whole > (uint64_t)INT64_MAX >> shift)
        return false;
    uint64_t extra = (uint64_t)(fraction * (double)(UINT64_C(1) << shift) + 0.5);
    uint64_t bytes = (whole << shift) + extra;
    if (bytes > INT64_MAX)
        return false;
    *ret = bytes;
    return true;
}

char *sg_size_format(uint64_t bytes, char *buffer)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, SG_SIZE_TEXT, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return buffer;
}
