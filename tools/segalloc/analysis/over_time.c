#include "analysis/over_time.h"

#include <string.h>

static void halve(struct sg_over_time *series)
{
    for (uint32_t i = 0; i < SG_OVER_TIME_STEPS / 2; i++) {
        uint64_t first = series->most[2 * i], second = series->most[2 * i + 1];
        series->most[i] = first > second ? first : second;
    }
    memset(series->most + SG_OVER_TIME_STEPS / 2, 0, sizeof series->most / 2);
    series->used = (series->used + 1) / 2;
    series->width *= 2;
}

void sg_over_time_note(struct sg_over_time *series, uint64_t event, uint64_t level)
{
    series->width += series->width == 0;
    while ((event - 1) / series->width >= SG_OVER_TIME_STEPS)
        halve(series);
    uint32_t step = (uint32_t)((event - 1) / series->width);
    /* what nothing was noted in has the level of what came before */
    for (uint32_t i = series->used; i <= step; i++)
        series->most[i] = i < step ? (i ? series->most[i - 1] : 0) : 0;
    if (step >= series->used) {
        series->most[step] = level;
        series->used = step + 1;
    } else if (level > series->most[step]) {
        series->most[step] = level;
    }
}
