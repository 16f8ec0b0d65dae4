/* Records read by a thread of its own before they are asked for, so that parsing and what is done with the records go on
   side by side; and kept for who reads them again, while there is room. */
#ifndef SG_READ_AHEAD_H
#define SG_READ_AHEAD_H

#include "reader/trace_input.h"

struct sg_read_ahead;

/* Has the format's part of the reader for itself until it is stopped. Keeps what it reads, at most `keep_bytes` of it.
   NULL: no host memory, or no thread. */
struct sg_read_ahead *sg_read_ahead_start(struct sg_trace_reader *reader, uint64_t keep_bytes);
void sg_read_ahead_stop(struct sg_read_ahead *ahead);

/* sg_trace_read(), which also brings reader->shown up to date. */
size_t sg_read_ahead_take(struct sg_read_ahead *ahead, struct segalloc_trace_record *out, size_t n);

/* Whether the records handed out end where an error of the reader's is. The thread may have come to one that they have
   not. */
bool sg_read_ahead_has_failed(const struct sg_read_ahead *ahead);

/* Back to the first record. False: not all records are kept, and nothing has changed. */
bool sg_read_ahead_restart(struct sg_read_ahead *ahead);

/* Share of the kept records that has been handed out; negative: those are not what is read. */
double sg_read_ahead_progress(const struct sg_read_ahead *ahead);

#endif
