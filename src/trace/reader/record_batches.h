/* Records read in batches: by a thread of its own before they are asked for, so that parsing and what is done with the
   records go on side by side; or kept for who reads them again, as long as there is room. */
#ifndef SG_RECORD_BATCHES_H
#define SG_RECORD_BATCHES_H

#include "reader/trace_input.h"

struct sg_batches;

/* Has the format's part of the reader for itself until it is stopped. `keep_bytes`: at most so much is kept, and no
   thread reads ahead, which would take the time of the one that decompresses; 0: nothing is kept. NULL: no host
   memory, or no thread. */
struct sg_batches *sg_batches_start(struct sg_trace_reader *reader, uint64_t keep_bytes);
void sg_batches_stop(struct sg_batches *batches);

/* sg_trace_read(), which also brings reader->shown up to date. */
size_t sg_batches_take(struct sg_batches *batches, struct segalloc_trace_record *out, size_t n);

/* Whether the records handed out end where an error of the reader's is. The thread may have come to one that they have
   not. */
bool sg_batches_have_failed(const struct sg_batches *batches);

/* Back to the first record. False: not all records are kept, and nothing has changed. */
bool sg_batches_restart(struct sg_batches *batches);

/* Share of the kept records that has been handed out; negative: those are not what is read. */
double sg_batches_progress(const struct sg_batches *batches);

#endif
