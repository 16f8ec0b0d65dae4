/* The trace file on disk. */
#ifndef SEGALLOC_TRACE_FORMAT_H
#define SEGALLOC_TRACE_FORMAT_H
#endif
