/* The bound of a trace: the oldest part of its file is shortened as new parts come (trace_fold.h says to what).

   For example, with trace_mb:64 a file that has passed 64 MiB is written anew by the helper, shorter, and takes its name. */
#ifndef SG_TRACE_RING_H
#define SG_TRACE_RING_H

#include "writer/trace_writer_file.h"

/* Shortens the oldest part of the file where it has passed the bound of the trace. For the helper (trace_ring.c). Where
   that fails the trace has no bound from there on, and a line says so. */
void sg_writer_turn(struct sg_trace_writer *writer);

#endif
