#include "size.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool unit_shift(const char *unit, unsigned *ret)
{
    static const char letters[] = "KMGT";
    if (*unit == '\0' || strcasecmp(unit, "B") == 0) {
        *ret = 0;
        return true;
    }
    const char *letter = strchr(letters, toupper((unsigned char)*unit));
    if (!letter)
        return false;
    const char *rest = unit + 1;
    if (*rest != '\0' && strcasecmp(rest, "iB") != 0 && strcasecmp(rest, "B") != 0)
        return false;
    *ret = 10 * (unsigned)(letter - letters + 1);
    return true;
}

bool sg_size_parse(const char *text, uint64_t *ret)
{
    while (*text == ' ')
        text++;
    uint64_t whole = 0;
    bool digits = false;
    for (; isdigit((unsigned char)*text); text++, digits = true) {
        if (whole > (INT64_MAX - 9) / 10)
            return false;
        whole = whole * 10 + (uint64_t)(*text - '0');
    }
    double fraction = 0, scale = 0.1;
    if (*text == '.') {
        for (text++; isdigit((unsigned char)*text); text++, scale /= 10, digits = true)
            fraction += scale * (*text - '0');
    }
    while (*text == ' ')
        text++;
    unsigned shift;
    if (!digits || !unit_shift(text, &shift) || whole > (uint64_t)INT64_MAX >> shift)
        return false;
    uint64_t extra = (uint64_t)(fraction * (double)(UINT64_C(1) << shift) + 0.5);
    *ret = (whole << shift) + extra;
    return *ret <= INT64_MAX;
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
