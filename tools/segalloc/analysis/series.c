#include "analysis/series.h"

#include <errno.h>
#include <stdlib.h>

/* Takes in samples that come after those of the bucket. */
static void bucket_join_samples(struct sg_bucket *into, const struct sg_sample *low, const struct sg_sample *high,
    const struct sg_sample *allocated, const struct sg_sample *reserved, const struct sg_sample *last)
{
    if (low->device.requested < into->low.device.requested)
        into->low = *low;
    if (high->device.requested > into->high.device.requested)
        into->high = *high;
    if (allocated->device.allocated > into->allocated.device.allocated)
        into->allocated = *allocated;
    if (reserved->device.reserved > into->reserved.device.reserved)
        into->reserved = *reserved;
    into->last = *last;
}

/* Makes buckets twice as wide. */
static void series_widen(struct sg_series *series)
{
    size_t count = 0;
    series->width *= 2;
    for (size_t i = 0; i < series->count; i++) {
        struct sg_bucket *from = &series->bucket[i], *into = count ? &series->bucket[count - 1] : NULL;
        from->at /= 2;
        if (into && into->at == from->at)
            bucket_join_samples(into, &from->low, &from->high, &from->allocated, &from->reserved, &from->last);
        else
            series->bucket[count++] = *from;
    }
    series->count = count;
}

int sg_series_note(struct sg_series *series, const struct sg_sample *sample)
{
    if (!series->width)
        series->width = 1;
    while (series->most && series->count && SG_BUCKET_SAMPLES * series->count > series->most &&
           series->bucket[series->count - 1].at != sample->number / series->width)
        series_widen(series);
    struct sg_bucket *last = series->count ? &series->bucket[series->count - 1] : NULL;
    if (last && last->at == sample->number / series->width) {
        bucket_join_samples(last, sample, sample, sample, sample, sample);
        return 0;
    }
    if (series->count == series->room) {
        size_t room = series->room ? 2 * series->room : 256;
        struct sg_bucket *larger = realloc(series->bucket, room * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        series->bucket = larger;
        series->room = room;
    }
    series->bucket[series->count++] =
        (struct sg_bucket){sample->number / series->width, *sample, *sample, *sample, *sample, *sample};
    return 0;
}

int sg_series_add(struct sg_series *series, const struct sg_walk_event *event)
{
    const struct sg_sample sample = {event->number, event->request, event->time_ns, event->devices[event->device]};
    return sg_series_note(series, &sample);
}

void sg_series_free(struct sg_series *series)
{
    free(series->bucket);
    *series = (struct sg_series){.most = series->most};
}

size_t sg_series_samples(const struct sg_bucket *bucket, struct sg_sample ret[SG_BUCKET_SAMPLES])
{
    const struct sg_sample *from[SG_BUCKET_SAMPLES] = {&bucket->low, &bucket->high, &bucket->allocated,
        &bucket->reserved, &bucket->last};
    size_t count = 0;
    for (int i = 0; i < SG_BUCKET_SAMPLES; i++) {
        size_t at = count;
        while (at && ret[at - 1].number > from[i]->number)
            at--;
        if (at && ret[at - 1].number == from[i]->number) {
            if (from[i]->device.knows_reserved)
                ret[at - 1] = *from[i]; /* statistics come after the event that they are of */
            continue;
        }
        for (size_t k = count++; k > at; k--)
            ret[k] = ret[k - 1];
        ret[at] = *from[i];
    }
    return count;
}

void sg_series_steps(const struct sg_series *series, bool reserved, struct sg_steps *ret)
{
    uint64_t level = 0;
    *ret = (struct sg_steps){.width = series->width};
    while (series->count && series->bucket[series->count - 1].at * series->width / ret->width >= SG_STEPS)
        ret->width *= 2;
    for (size_t i = 0; i < series->count; i++) {
        const struct sg_bucket *bucket = &series->bucket[i];
        uint32_t step = (uint32_t)(bucket->at * series->width / ret->width);
        uint64_t most = reserved ? bucket->reserved.device.reserved : bucket->high.device.requested;
        for (; ret->used < step; ret->used++)
            ret->most[ret->used] = level;
        ret->used = step + 1;
        ret->most[step] = most > ret->most[step] ? most : ret->most[step];
        level = reserved ? bucket->last.device.reserved : bucket->last.device.requested;
    }
}
