#include "rehearse/rate.h"

#include <stddef.h>
#include <strings.h>

#include "size.h"
#include "tool.h"

static const struct {
    const char *name, *source;
    uint64_t mb;
} rates[] = {
#define RATE(name, mb, source) {name, source, mb},
#include "rehearse/rates.def"
#undef RATE
};

int sg_rehearse_read_rate(const char *verb, const char *text, struct sg_rehearse_rate *ret)
{
    static const char standard[] = "pcie4";
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        if (strcasecmp(text ? text : standard, rates[i].name) != 0)
            continue;
        *ret = (struct sg_rehearse_rate){rates[i].mb * 1000000, rates[i].source};
        return 0;
    }
    ret->source = "--rate";
    if (sg_tool_size(text, &ret->bytes) && ret->bytes >= SG_MIB)
        return 0;
    return sg_tool_usage(verb, "--rate takes pcie3, pcie4, pcie5, or bytes a second such as 24GiB, not \"%s\"", text);
}
