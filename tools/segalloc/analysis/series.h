/* Levels of a device over time, in use and held, in a bounded number of points. Neighbours are merged where there are too
   many. Among those the lowest, the highest, the most allocated, the most reserved and the last stay: no peak is lost. */
#ifndef SG_SERIES_H
#define SG_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/walk.h"

enum { SG_BUCKET_SAMPLES = 5 }; /* at most */

struct sg_sample {
    uint64_t number, request, time_ns; /* as in walk.h; 0: none */
    struct sg_walk_device device;
};

struct sg_series {
    size_t most;    /* points, or more by as many as a merge keeps; 0: all events */
    uint64_t width; /* events that are one bucket */
    size_t count, room;
    struct sg_bucket {
        uint64_t at; /* number ÷ width */
        struct sg_sample low, high, allocated, reserved, last;
    } *bucket;
};

/* Takes in what an event leaves of its device. 0 or -ENOMEM. */
int sg_series_add(struct sg_series *series, const struct sg_walk_event *event);
/* Takes in a sample, whose number is not below that of the one before. 0 or -ENOMEM. */
int sg_series_note(struct sg_series *series, const struct sg_sample *sample);
void sg_series_free(struct sg_series *series);

/* Writes the samples of a bucket in their order, each once; returns how many. */
size_t sg_series_samples(const struct sg_bucket *bucket, struct sg_sample ret[SG_BUCKET_SAMPLES]);

/* A level over the length of a trace, in a fixed number of steps: of each the most that there was in it. */
enum { SG_STEPS = 128, SG_STEPS_POINTS = SG_STEPS * SG_BUCKET_SAMPLES };
struct sg_steps {
    uint64_t width; /* events of a step; 0: nothing was noted */
    uint32_t used;
    uint64_t most[SG_STEPS];
};

/* The requested or the reserved bytes of a series in steps. Event 1 is to have been noted with the number 0, and `most` of the series to
   be SG_STEPS_POINTS. A step without an event has the level that the last one left. */
void sg_series_steps(const struct sg_series *series, bool reserved, struct sg_steps *ret);

#endif
