/* One pass over what a trace says of memory: its allocations, frees and failures, with what is in use after each, and
   what the allocator said it held. Memory grows with the blocks alive at once, not with the length of the trace. */
#ifndef SG_WALK_H
#define SG_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "reader/dictionary.h"
#include "reader/trace_reader.h"

/* SERVED: an allocation that was refused has been made good (refusal.h): the FAILURE that it was named before is
   none. */
enum sg_walk_kind { SG_WALK_ALLOC, SG_WALK_FREE, SG_WALK_FAILURE, SG_WALK_SERVED, SG_WALK_STATISTICS };

/* A device's state after the event. */
struct sg_walk_device {
    uint64_t requested, blocks, failures, allocs;
    bool knows_reserved; /* the allocator has said what it holds: the next three are as of then, bytes */
    uint64_t reserved, allocated, pending;
    uint64_t peak_reserved;                /* up to then, bytes */
};

struct sg_walk_event {
    enum sg_walk_kind kind;
    uint64_t number; /* among allocations, frees and failures, from 1; of the other kinds that of the event before */
    uint64_t request;        /* among all that the program did, from 1: the number that reports give an event */
    uint64_t time_ns;        /* since the first event */
    uint32_t device, stream; /* stream: index */
    uint32_t site, phase;    /* of an allocation or a failure: where it was asked for; 0: unknown */
    uint32_t block;          /* number of the block while it lives; a later one may have it again. 0: of a failure */
    uint64_t size;           /* asked for, bytes */
    uint64_t far;            /* an allocation: bytes of it that lie in the host's memory, by the option overflow */
    uint64_t lacked;         /* a failure: bytes that it was short by; 0: unknown */
    enum segalloc_outside by;               /* a failure: the call; OTHER: one that segalloc serves */
    uint64_t failed_number, failed_request; /* SERVED: those of that FAILURE */
    const struct sg_walk_device *devices; /* of all devices: SG_DICTIONARY_DEVICES of them */
    const struct sg_dictionary *dictionary;
    const struct segalloc_trace_record *record;
};

/* A negative errno ends the pass; a positive value too, as one that went well. */
typedef int sg_walk_fn(void *user, const struct sg_walk_event *event);

/* Reads `reader` to its end, with a line of progress on stderr if that is a terminal. 0, or a negative errno; problems
   of the file are the reader's to report. */
int sg_walk(struct sg_trace_reader *reader, sg_walk_fn *call, void *user);

/* A moment that an export can be of. AUTO: the first failure, else the peak. */
enum sg_moment { SG_MOMENT_AUTO, SG_MOMENT_PEAK, SG_MOMENT_FAILURE, SG_MOMENT_END, SG_MOMENT_TIME };

struct sg_moment_found {
    uint64_t number[SG_DICTIONARY_DEVICES]; /* of each device the event it is at; 0: it was never used */
    uint64_t request[SG_DICTIONARY_DEVICES]; /* of each device that event's number among all that the program did */
    uint64_t all;                           /* of all devices together: where their sum was largest, or the failure */
    bool failed;                            /* it is a failure's */
    uint64_t time_ns;                       /* of `all` */
    uint64_t in_use[SG_DICTIONARY_DEVICES]; /* requested, bytes, by `number` */
};

/* Finds the moment and goes back to the beginning; `time_ns` is for SG_MOMENT_TIME: what comes at it or later does not
   count. 0, or a negative errno: -ENOENT where nothing failed and SG_MOMENT_FAILURE was asked for, -ESPIPE where the
   trace can be read once only. */
int sg_moment_find(struct sg_trace_reader *reader, enum sg_moment moment, uint64_t time_ns, struct sg_moment_found *ret);

/* A stretch of a trace: the calls of a device between two readings of its statistics `allocs` and `frees`. */
struct sg_window {
    uint32_t device;
    uint64_t allocs, frees; /* the first reading */
    uint64_t last_alloc;    /* `allocs` of the second one */
};

/* The moment within the window where most was in use on its device. Blocks from before the window count, other devices
   do not. Results are those of sg_moment_find(). */
int sg_window_find(struct sg_trace_reader *reader, const struct sg_window *window, struct sg_moment_found *ret);

#endif
