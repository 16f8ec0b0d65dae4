/* The lines of `segalloc top`: alike on a screen, in a batch and once. */
#ifndef SG_TOP_H
#define SG_TOP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "monitor/live_stats.h"

enum { SG_TOP_HISTORY = 256 };

/* Memory that one device of one process held, sample by sample. */
struct sg_top_history {
    uint64_t pid;
    uint32_t device, count, at;  /* count: samples in all up to SG_TOP_HISTORY; at: where the next goes */
    bool seen;                   /* in the latest look */
    uint64_t reserved[SG_TOP_HISTORY], requested[SG_TOP_HISTORY];
};

struct sg_top {
    struct sg_top_history *history;
    size_t count, room;
};

/* Takes in one look; what is gone is forgotten. 0 or -ENOMEM. */
int sg_top_add(struct sg_top *top, const struct sg_live *live);
void sg_top_free(struct sg_top *top);

/* Writes one look in lines of at most `width` columns. `unicode`: with block characters. */
void sg_top_text(FILE *out, const struct sg_top *top, const struct sg_live *live, int width, bool unicode);

/* Writes one look as one JSON object, on one line of stdout. */
void sg_top_json(const struct sg_live *live);

#endif
