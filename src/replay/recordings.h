/* Recordings of events in a trace, by their numbers, each with what the caller keeps of it.

   Only the latest 4096 are kept, so memory does not grow with the trace. A recording that is gone has no data, and then a
   wait for it orders nothing. That is safe: at most memory is used later. In recorded trainings waits come up to 350
   recordings later.

   Example: recording 5000 takes the place of recording 904, which is 4096 earlier. A wait for 904 finds nothing. */
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

/* Gives the memory back; of zeros too. */
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

/* The room for the data of a new recording, `each` bytes that the caller fills. Number 0 is no recording. */
static inline void *sg_recordings_put(struct sg_recordings *recordings, uint64_t number)
{
    size_t at = number % SG_RECORDINGS_KEPT;
    recordings->number[at] = number;
    return recordings->data + at * recordings->each;
}

/* The data of a recording. NULL: it is gone, or was never made. */
static inline void *sg_recordings_get(const struct sg_recordings *recordings, uint64_t number)
{
    size_t at = number % SG_RECORDINGS_KEPT;
    return number && recordings->number[at] == number ? recordings->data + at * recordings->each : NULL;
}

#endif
