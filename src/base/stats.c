#include "stats.h"

const struct sg_stat_info *sg_stat_info(enum sg_stat stat)
{
    static const struct sg_stat_info table[] = {
#define STAT(name, kind, unit, text) {#name, #unit, text, SG_STAT_##kind},
#include "stats.def"
    };
    return &table[stat];
}
