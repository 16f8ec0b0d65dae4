/* A trace decoded once into memory, so that many replays on many threads can read it. */
#ifndef SG_TUNE_DECODED_TRACE_H
#define SG_TUNE_DECODED_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"
#include "segalloc/trace_format.h"

enum { SG_TUNE_ERROR = 640, SG_TUNE_EVENT_BYTES = 16 };

struct sg_tune_event;

struct sg_tune_trace {
    const char *path;                   /* the caller's */
    char *conf;                         /* in force when it was recorded; "" when unknown */
    const char *end_text;               /* why it is incomplete, one clause; NULL when it isn't */
    uint64_t events;                    /* of the program */
    uint64_t granularity, device_bytes; /* 0: unknown; the largest device's */
    uint64_t card[SEGALLOC_TRACE_DEVICES]; /* of each device, as recorded; 0: unknown, or not used */
    bool unknown_card;                  /* of a device that was used none was recorded, or one without end */
    uint64_t peak_live;                 /* bytes asked for and not freed: the sum of the devices' peaks */
    uint64_t peak[SEGALLOC_TRACE_DEVICES];   /* of each device */
    uint64_t needed[SEGALLOC_TRACE_DEVICES]; /* of each device, at once, by the allocations that failed too */
    uint64_t failures;                  /* allocations that failed when it was recorded */
    uint64_t failures_outside;          /* calls that failed then, and that segalloc does not serve */
    uint64_t failed_outside_bytes;      /* the largest of them, 0: not known, */
    enum segalloc_outside failed_outside_by; /* … and its call */
    uint64_t reserved;                  /* at the peak, as recorded; 0: unknown */
    uint64_t part_end;                  /* events, of those decoded, in the first part; 0: it has none */
    struct sg_tune_event **chunk;
    uint64_t bytes;       /* of memory for them */
    size_t count, chunks; /* of decoded events, of which `events` may be more: some decide nothing */
};

/* Reads the trace at `path` ("-" is standard input). At most `bound` bytes of memory are taken for its events. `stop`
   ends the reading. Returns 0 or a negative errno (-EINTR: stopped; -E2BIG: over the bound) with a line in
   error[SG_TUNE_ERROR] that doesn't name the path. In any case sg_tune_trace_close() frees what was read. */
int sg_tune_trace_open(const char *path, uint64_t bound, const atomic_bool *stop, struct sg_tune_trace *ret,
                       char *error);
void sg_tune_trace_close(struct sg_tune_trace *trace);

/* Divides the trace: settings are chosen on its first part and judged by the rest. The first part ends at the first
   event from the half on by which every device has come near its peak. A trace that is short, or that comes there late,
   has no parts. */
void sg_tune_trace_divide(struct sg_tune_trace *trace);

/* Gives the trace that rank 0 has decoded to the other ranks, each of which calls it with a trace of zeros. 0 or
   -ENOMEM, alike on each rank. */
int sg_tune_trace_share(struct sg_tune_trace *trace, const struct sg_tune_ranks *ranks);

/* One reader of a decoded trace; any number may read at once. */
struct sg_tune_cursor {
    const struct sg_tune_trace *trace;
    size_t at;
    bool (*stopped)(void *user); /* asked now and then: true ends the reading */
    void *user;
    bool cut; /* it did */
};

/* An sg_play_next; the source is a cursor. */
size_t sg_tune_next(void *cursor, struct segalloc_trace_record *out, size_t n);

#endif
