/* The list of roundup_power2_divisions: divisions for each interval of sizes, with PyTorch's grammar and rules
   (c10/core/AllocatorConfig.cpp). roundup.h says what divisions do to a request.

   A *boundary*, a power of 2 in MiB, names the interval [2^i MiB, 2^(i+1) MiB). The first one fills all intervals below it
   too; those between two boundaries stay off. ">" fills what is above the last boundary, or above the lowest interval where
   there is none.

   Example, the list [256:1,512:2,1024:4,>:8]:
     0 to 8      up to 512 MiB    1    256 MiB is interval 8, and the first boundary fills what is below it
     9           to 1 GiB         2
     10          to 2 GiB         4
     11 to 15    above            8 */
#ifndef SG_CONF_ROUNDUP_H
#define SG_CONF_ROUNDUP_H

#include "base/text.h"
#include "config/conf.h"

/* Reads a list, or one number for all intervals. False, changing nothing: neither, or divisions that are no power of 2. */
bool sg_conf_roundup_parse(const char *value, uint64_t ret[SG_ROUNDUP_INTERVALS]);

/* Adds the shortest text that sg_conf_roundup_parse() reads back to these intervals: one number, or a list from the first to
   the last that differs. */
void sg_conf_roundup_add(struct sg_text *text, const uint64_t intervals[SG_ROUNDUP_INTERVALS]);

#endif
