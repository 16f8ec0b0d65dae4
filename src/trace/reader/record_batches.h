/* Records read in batches: ahead by a thread, or kept in memory for another reading.

   A *batch* is up to 4096 records, 128 KiB, with the reader's state after them. There are two ways to use batches, and a
   reader has one of them. *Ahead*: a thread parses up to four batches before they are asked for, beside the
   use of the records. *Kept*: every batch of the first reading stays, so that later readings are copies.

   Why both: a replay reads a trace once, and is held up by parsing. The search for a smallest card reads it ten times.

   Example, a CSV of 646270 rows, read three times with 64 MiB to keep:
     first reading     158 batches are parsed, 20 MiB, and kept, since they fit
     second reading    sg_batches_restart() is true: no parsing, 158 copies
   Had they not fitted, the kept ones would have gone, and each reading would parse again. */
#ifndef SG_RECORD_BATCHES_H
#define SG_RECORD_BATCHES_H

#include "reader/trace_input.h"

struct sg_batches;

/* Begins to read in batches; the format's part of the reader belongs to them until they are stopped. With `keep_bytes` at
   most so much is kept, and no thread reads ahead, since that would take the time of the one that decompresses. 0: nothing
   is kept. NULL: no host memory, or no thread. */
struct sg_batches *sg_batches_start(struct sg_trace_reader *reader, uint64_t keep_bytes);
void sg_batches_stop(struct sg_batches *batches);

/* Does what sg_trace_read() says, and brings reader->shown up to date. */
size_t sg_batches_take(struct sg_batches *batches, struct segalloc_trace_record *out, size_t n);

/* True if the records handed out end where an error of the reader's is. The thread may have come to one that they have
   not. */
bool sg_batches_have_failed(const struct sg_batches *batches);

/* Back to the first record. False: not all records are kept, and nothing has changed. */
bool sg_batches_restart(struct sg_batches *batches);

/* Share of the kept records that has been handed out; negative: those are not what is read. */
double sg_batches_progress(const struct sg_batches *batches);

#endif
