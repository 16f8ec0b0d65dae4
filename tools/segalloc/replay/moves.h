/* The pages that were moved in a recorded run, by who asked for the memory that they were moved for. */
#ifndef SG_MOVES_H
#define SG_MOVES_H

#include <stddef.h>
#include <stdint.h>

#include "reader/trace_reader.h"

/* Requests of one place, phase and size, all devices together. */
struct sg_move {
    char *site, *phase;  /* one line each; NULL: the trace does not say */
    unsigned size_class; /* sg_live_class() */
    uint64_t requests;   /* that got moved pages */
    uint64_t pages, bytes;
};

struct sg_moves {
    struct sg_move *move; /* most bytes first */
    size_t count;
    uint64_t pages, bytes; /* of all of them */
    uint64_t diverged;     /* request from which on the replay is not the recorded run; 0: none */
};

/* Plays the trace from its beginning. 0, or a negative errno: -ENOMEM, -ESPIPE where it can be read once only, -ENODATA where
   it does not say what the allocator did. */
int sg_moves_read(struct sg_trace_reader *reader, struct sg_moves *ret);
void sg_moves_free(struct sg_moves *moves);

#endif
