/* What a device had in use and held over time, in a bounded number of points. Neighbours are merged where there are too
   many. Of those the lowest, the highest, the most allocated, the most reserved and the last stay: no peak is lost. */
#ifndef SG_SERIES_H
#define SG_SERIES_H

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
void sg_series_free(struct sg_series *series);

/* Writes the samples of a bucket in their order, each once; returns how many. */
size_t sg_series_samples(const struct sg_bucket *bucket, struct sg_sample ret[SG_BUCKET_SAMPLES]);

#endif
