/* Blocks of a trace that lay in the host's memory in part, by the option overflow, and the steps that had any.

   Nouns. Bytes are *far* while their block lives. A *step* is a part of the program (phase_step.h). Far bytes of a step are the most that
   there were in it at once.

   Example: steps 1 to 40. A block with 300 MiB far is made and freed in step 7, and another one with 200 MiB in step 30. The peak is 300 MiB,
   2 of 40 steps had any, and `step_bytes` is 500 MiB. A program without steps has one that lasts from its beginning to its end. */
#ifndef SG_FAR_H
#define SG_FAR_H

#include <stdint.h>

#include "reader/trace_reader.h"

struct sg_far {
    uint64_t peak_bytes, blocks;
    uint64_t steps, of_steps; /* those with far bytes; of all. 0 of 0: there are no steps */
    uint64_t step_bytes;      /* the sum of all steps' far bytes */
};

/* Reads the trace from its beginning to its end. 0, or a negative errno: -ESPIPE where it can be read once only. */
int sg_far_read(struct sg_trace_reader *reader, struct sg_far *ret);

#endif
