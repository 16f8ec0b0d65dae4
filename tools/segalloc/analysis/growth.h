/* Lines of code that keep more memory with each step of a program: what looks like a leak to whoever runs it for days.

   Nouns. A *step* is a part of the program. The name of its phase ends in a number that counts up: "step 12". PyTorch's optimizers,
   segalloc.mark() and ranges of NVTX make such phases. The *low* of a line in a step is the least that it had alive there. Memory that
   comes and goes within a step has a low of 0, and memory that stays has all of it.

   Why a stack and not its line alone. One helper allocates for many callers, of which one may keep what it gets.

   Why the low. Batches differ in length from step to step, and so do the bytes alive at any fixed moment. Memory that is kept can only
   raise the low, by as much in each step or in each few steps.

   Example: train.py:61 has a low of 40 MiB in steps 1 to 139. In step 140 it has 41.2, in step 141 42.4, in step 200 113.2 MiB. So it
   keeps 1.2 MiB a step since step 139. 24 GiB, of which 20 are taken at the peak, last for 3,413 more steps.

   Memory grows with the lines of code, not with the steps: beyond 128 steps two count as one. */
#ifndef SG_GROWTH_H
#define SG_GROWTH_H

#include <stdint.h>

#include "reader/trace_reader.h"

enum { SG_GROWTH_ROWS = 64 }; /* lines that are kept, those that grow most */

struct sg_growth_row {
    uint32_t device, site;            /* a stack of the site book; 0: unknown */
    uint64_t bytes_a_step, grown;     /* bytes; `grown`: since that step, up to the last whole one */
    uint64_t since_step;              /* number of the first one that left more than it found */
};

struct sg_growth {
    uint64_t last_step;                       /* the number of the trace's last step; 0: it has none */
    struct sg_growth_row row[SG_GROWTH_ROWS]; /* fastest first */
    uint32_t rows;
};

/* Reads the trace from its beginning to its end. 0, or a negative errno: -ESPIPE where it can be read once only. */
int sg_growth_read(struct sg_trace_reader *reader, struct sg_growth *ret);

/* The step at which a device is full. `room`: bytes that were left at its peak, which all that grows there takes. 0: nothing grows. */
uint64_t sg_growth_ends(const struct sg_growth *growth, uint32_t device, uint64_t room);

#endif
