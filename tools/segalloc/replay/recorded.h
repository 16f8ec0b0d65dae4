/* How a trace was recorded: its settings, and the devices that it is of. */
#ifndef SG_RECORDED_H
#define SG_RECORDED_H

#include "player.h"
#include "reader/trace_reader.h"

struct sg_recorded {
    struct sg_conf conf;  /* in force then; the defaults where that is not known */
    bool ours;            /* written by the library: what the driver answered stands in it too */
    bool fixed;           /* served from fixed segments */
    uint64_t granularity; /* bytes */
    uint64_t device_bytes[SG_DEVICES_MAX]; /* 0: unknown */
    uint64_t live_most;                    /* bytes alive at any time on one device; 0: not known */
    uint64_t *made_good;                   /* as in player.h; sg_recorded_free() frees it */
    size_t made_goods;
    uint64_t *refused;                     /* these, and those that failed */
    size_t refusals;
};

/* Reads a trace of ours once, where it can be read again, and returns to its beginning; what is imported defines no
   devices. 0, or a negative errno (no host memory). Mistakes in the trace are left to the play, which meets them
   too. */
int sg_recorded_read(struct sg_trace_reader *reader, struct sg_recorded *ret);
/* Takes what failed for made good: the program has come to its end without. Before sg_recorded_play(). */
void sg_recorded_excuse(struct sg_recorded *recorded);
void sg_recorded_free(struct sg_recorded *recorded);

/* Finds `live_most` and `made_good` of an imported trace, as above. */
int sg_recorded_measure(struct sg_trace_reader *reader, struct sg_recorded *recorded);

/* True if `play`, with its settings and its cards (0: each device its own), is the recorded run again in all that
   decides anything here. */
bool sg_recorded_is(const struct sg_recorded *recorded, const struct sg_play *play);

/* Makes `play` the recorded run: its settings, each device a card of its own size. */
void sg_recorded_play(const struct sg_recorded *recorded, struct sg_play *play);

/* Writes the settings that decide anything here as "key:value,…", "" for the defaults. */
void sg_recorded_conf_text(const struct sg_conf *conf, char *text, size_t size);

#endif
