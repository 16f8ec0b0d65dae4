/* The most that each part of a program had in use at once: each function, and each phase.

   Nouns. A *part* is a function with its file, or a phase. Its *peak* is the most bytes of one device that it had in use at any moment
   of the trace. For a phase that is all that was in use while it ran.

   Why each has a peak of its own: the peak of the whole run may come to lie elsewhere, where other parts have more. A part's
   own peak changes only with that part.

   How: lines of a function count together, so that code above it may grow. The function that called it is a part of the name.
   Phases that differ in a number count together. Blocks of unknown lines count by their size.

   For example, train.py holds 3 MiB of line 57 and 2 MiB of line 61, both in forward, in "step 3, forward". The rows are
   "train.py in forward, called by train.py in main" with 5 MiB, and "step #, forward" with what was in use then. */
#ifndef SG_PART_PEAKS_H
#define SG_PART_PEAKS_H

#include <jansson.h>

#include "reader/trace_reader.h"

/* Reads a trace from its beginning, and raises the members of two objects, parts with their peaks in bytes: `functions` and
   `phases`. 0, or a negative errno. */
int sg_part_peaks_read(struct sg_trace_reader *reader, json_t *functions, json_t *phases);

#endif
