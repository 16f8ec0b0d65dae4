/* Host memory that only grows, for work that is repeated: no allocation once it is large enough. */
#ifndef SG_SCRATCH_H
#define SG_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* All zero: none yet. Nobody shares one. */
struct sg_scratch {
    void *memory;
    size_t bytes;
};

/* Makes room for `count` elements of `size` bytes; what is there stays, at another address perhaps. False: no host
   memory. */
bool sg_scratch_reserve(struct sg_scratch *scratch, size_t count, size_t size);

/* Gives it back. */
void sg_scratch_fini(struct sg_scratch *scratch);

#endif
