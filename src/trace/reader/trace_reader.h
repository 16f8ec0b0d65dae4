/* Reads traces of every known format: our own, RMM's replay CSV, PyTorch's memory snapshots.

   The content of a file decides on its *format*, not its name, and each may be compressed (zstd) or come from a pipe. All
   formats give the same thing: records of segalloc/trace_format.h in their order, with definitions before their first use.
   So a tool knows one form of trace.

   Example, counting the bytes asked for in any of them:
     struct sg_trace_reader *reader;
     if (sg_trace_open(path, &reader, error))
         return fail(error);                             "the file is empty"
     while ((n = sg_trace_read(reader, batch, 1024)) > 0)
         for (size_t i = 0; i < n; i++)
             asked += batch[i].kind == SEGALLOC_RECORD_ALLOCATE ? batch[i].size : 0;
     if (sg_trace_error(reader)) ...                     "line 17 has fewer than 6 fields"
     sg_trace_close(reader);
   tests/data/lmcleaner-3b-zero3.csv.zst has 177031 of these records.

   Memory is bounded whatever the length, but for snapshots: their end says what their beginning means, so they are held
   whole. Nothing in a file is trusted (trace_check.h). One reader is for one thread. */
#ifndef SG_TRACE_READER_H
#define SG_TRACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "segalloc/trace_format.h"

/* The way in which a trace ends. Only DAMAGED says that something is wrong; the others say how much there is.

   Example, one trace of three blocks, of which the last is open with 120 records:
     as it is                       KILLED     no END, and the last block has no checksum: all 120 records are handed out
     with an END record             CLOSED
     cut in the middle of block 2   CUT        blocks 0 and 1, and the whole records of block 2 that are there
     a byte of block 1 changed      DAMAGED    block 0 alone; "byte 1052688: the checksum of a block is wrong" */
enum sg_trace_end {
    SG_TRACE_OPEN,    /* the end has not been reached yet */
    SG_TRACE_CLOSED,  /* complete: the process closed it, or the format has no end of its own */
    SG_TRACE_KILLED,  /* the process ended without closing it; every record that it wrote is there */
    SG_TRACE_CUT,     /* the file ends early */
    SG_TRACE_DAMAGED  /* a block is not what was written: neither it nor what follows it is read */
};

/* The state of a reader after the records that it has handed out. */
struct sg_trace_info {
    const char *format; /* "segalloc", "rmm-csv" or "pytorch-snapshot" */
    bool compressed;
    struct segalloc_trace_header header; /* of our own format; otherwise zeros but for `imported` = 1 */
    const char *conf, *command;          /* "" when unknown; the reader's */
    const char *begin_text; /* why what was before it is not known, one clause; NULL: it begins with the process */
    enum sg_trace_end end;
    const char *end_text;  /* what is wrong at the end, one clause; NULL while nothing is */
    uint64_t records;      /* handed out so far, definitions included */
    uint64_t dropped;      /* lost by the writer, as far as read */
    uint64_t line;         /* CSV: line read last */
    uint64_t offset;       /* ours: bytes up to the end of the block read last, decompressed */
    uint64_t next; /* ours: where the record after those handed out stands, while it is of the same block: all that
                              are handed out by one call are */
};

struct sg_trace_reader;

enum { SG_TRACE_ERROR = 512 };

/* Opens `path` ("-" is standard input) and reads its header. Returns 0 or a negative errno with one line in
   error[SG_TRACE_ERROR], which names the cause but not the path. */
int sg_trace_open(const char *path, struct sg_trace_reader **ret, char *error);
void sg_trace_close(struct sg_trace_reader *reader);

/* Writes the next records, at most `n`, to `out` and returns their number; 0 at the end or after an error. The stream and the thread of a record
   are indices of definitions that came before it in the same sequence (0: none). A trace that is only incomplete
   is no error: see info->end. Best in batches of 256 and more. Files that must be parsed or decompressed are read ahead
   by threads from the first call on, unless they are kept. */
size_t sg_trace_read(struct sg_trace_reader *reader, struct segalloc_trace_record *out, size_t n);

/* The line that says why reading stopped; NULL: there was no error. The reader's. */
const char *sg_trace_error(const struct sg_trace_reader *reader);
const struct sg_trace_info *sg_trace_info(const struct sg_trace_reader *reader);

/* Goes back to the first record. 0, -ESPIPE for a pipe, or a negative errno with its line in sg_trace_error(). */
int sg_trace_rewind(struct sg_trace_reader *reader);

/* Keeps the records of the next reading, at most `bytes` of them, where reading takes longer than copying: once it has
   come to the end, later readings are from memory. Before the first record is read. */
void sg_trace_keep(struct sg_trace_reader *reader, uint64_t bytes);

/* Share of the file read, 0 to 1; negative when unknown. */
double sg_trace_progress(const struct sg_trace_reader *reader);

#endif
