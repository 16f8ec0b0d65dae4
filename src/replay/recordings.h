/* Recordings of events in a trace, by their numbers: what each came after. Only the latest are kept, so memory does not
   grow with the trace. Who asks for one that is gone learns nothing, which is safe: at most memory is used later. In
   recorded trainings waits come up to 350 recordings later. */
#ifndef SG_RECORDINGS_H
#define SG_RECORDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { SG_RECORDINGS_KEPT = 4096 };

struct sg_recordings {
    size_t each;
    uint64_t *number; /* 0: unused */
    char *data;
};

static inline void sg_recordings_fini(struct sg_recordings *recordings)
{
    free(recordings->number);
    free(recordings->data);
    recordings->number = NULL;
    recordings->data = NULL;
}

/* `each`: bytes that are kept of a recording. False: no host memory. */
static inline bool sg_recordings_init(struct sg_recordings *recordings, size_t each)
{
    recordings->each = each;
    recordings->number = calloc(SG_RECORDINGS_KEPT, sizeof *recordings->number);
    recordings->data = malloc(SG_RECORDINGS_KEPT * each);
    if (recordings->number && recordings->data)
        return true;
    sg_recordings_fini(recordings);
    return false;
}

/* Where to write what is kept of a new recording. */
static inline void *sg_recordings_put(struct sg_recordings *recordings, uint64_t number)
{
    size_t at = number % SG_RECORDINGS_KEPT;
    recordings->number[at] = number;
    return recordings->data + at * recordings->each;
}

/* NULL: gone, or never made. */
static inline void *sg_recordings_get(const struct sg_recordings *recordings, uint64_t number)
{
    size_t at = number % SG_RECORDINGS_KEPT;
    return number && recordings->number[at] == number ? recordings->data + at * recordings->each : NULL;
}

#endif
