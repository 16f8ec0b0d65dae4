#include "config/conf_roundup.h"

#include "base/ascii.h"
#include "config/conf_number.h"

#include <inttypes.h>
#include <string.h>

static bool is_power_of_2(uint64_t value)
{
    return value && (value & (value - 1)) == 0;
}

/* One "key:value" of a list, spaces dropped. Returns what follows it, NULL when it's malformed. */
static const char *roundup_entry(const char *at, char *ret_key, char *ret_value, size_t size)
{
    size_t length = 0;
    char *into = ret_key;
    for (; *at && *at != ',' && *at != ']'; at++) {
        if (sg_ascii_space(*at))
            continue;
        if (*at == ':' && into == ret_key) {
            into[length] = '\0';
            into = ret_value;
            length = 0;
        } else if (length + 1 < size) {
            into[length++] = *at;
        } else {
            return NULL;
        }
    }
    into[length] = '\0';
    if (into == ret_key || (*at != ',' && *at != ']'))
        return NULL;
    return *at == ',' ? at + 1 : at;
}

bool sg_conf_roundup_parse(const char *value, uint64_t ret[SG_ROUNDUP_INTERVALS])
{
    uint64_t intervals[SG_ROUNDUP_INTERVALS] = {0}, divisions;
    if (*value != '[') {
        if (!sg_conf_number_whole(value, &divisions) || (divisions && !is_power_of_2(divisions)))
            return false;
        for (unsigned i = 0; i < SG_ROUNDUP_INTERVALS; i++)
            ret[i] = divisions;
        return true;
    }
    unsigned last = 0;
    bool first = true, empty = true;
    const char *at = value + 1;
    while (*at && *at != ']') {
        char key[24], count[24];
        at = roundup_entry(at, key, count, sizeof key);
        if (!at || !sg_conf_number_whole(count, &divisions) || (divisions && !is_power_of_2(divisions)))
            return false;
        /* ">" fills everything above the last boundary; a boundary fills its interval, and the first one those below it too. */
        unsigned from = last + 1, to = SG_ROUNDUP_INTERVALS;
        if (strcmp(key, ">") != 0) {
            uint64_t boundary;
            if (!sg_conf_number_whole(key, &boundary) || !is_power_of_2(boundary))
                return false;
            unsigned index = 63 - (unsigned)__builtin_clzll(boundary);
            last = index < SG_ROUNDUP_INTERVALS ? index : SG_ROUNDUP_INTERVALS - 1;
            from = first ? 0 : last;
            to = last + 1;
            first = false;
        }
        for (unsigned i = from; i < to; i++)
            intervals[i] = divisions;
        empty = false;
    }
    if (empty || at[0] != ']' || at[1] != '\0')
        return false;
    /* Only now, so that a bad list changes nothing. */
    memcpy(ret, intervals, sizeof intervals);
    return true;
}

void sg_conf_roundup_add(struct sg_text *text, const uint64_t intervals[SG_ROUNDUP_INTERVALS])
{
    bool same = true;
    for (unsigned i = 1; i < SG_ROUNDUP_INTERVALS; i++)
        same &= intervals[i] == intervals[0];
    if (same) {
        sg_text_add(text, "%" PRIu64, intervals[0]);
        return;
    }
    /* The first boundary fills those below it, and ">" those above the last one named. */
    unsigned first = 0, last = SG_ROUNDUP_INTERVALS - 1;
    while (intervals[first + 1] == intervals[first])
        first++;
    while (intervals[last - 1] == intervals[last])
        last--;
    sg_text_add(text, "[");
    for (unsigned i = first; i < last; i++)
        sg_text_add(text, "%u:%" PRIu64 ",", 1u << i, intervals[i]);
    sg_text_add(text, ">:%" PRIu64 "]", intervals[last]);
}
