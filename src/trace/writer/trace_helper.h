/* The helper: a thread that makes blocks of a trace ahead of the events, and keeps the file to its bound.

   It stands above the file (trace_writer_file.h) and the bound (trace_ring.h), and calls both. Events call neither while
   the helper is well: they take blocks that are ready.

   For example, an event takes block 3 of {3, 4, 5, 6} and wakes the helper. That shortens the file where it has passed its
   bound, makes block 7, and sleeps again. */
#ifndef SG_TRACE_HELPER_H
#define SG_TRACE_HELPER_H

#include "writer/trace_writer_file.h"

/* Starts the helper, detached and with all signals blocked. Without one the events make their blocks themselves. */
void sg_writer_start_helper(struct sg_trace_writer *writer);

/* True when the helper has gone, so that everything is the caller's again. */
bool sg_writer_stop_helper(struct sg_trace_writer *writer);

#endif
