/* Reads traces of every known format: our own, RMM's replay CSV, PyTorch's memory snapshots. The content decides, and each
   may be compressed (.zst) or come from a pipe. Memory is bounded whatever the length, but for snapshots: their end says
   what their beginning means, so they are held whole. Nothing in a file is trusted. */
#ifndef SG_TRACE_READER_H
#define SG_TRACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "segalloc/trace_format.h"

enum sg_trace_end {
    SG_TRACE_OPEN,    /* the end has not been reached yet */
    SG_TRACE_CLOSED,  /* complete: the process closed it, or the format has no end of its own */
    SG_TRACE_KILLED,  /* the process ended without closing it; every record that it wrote is there */
    SG_TRACE_CUT,     /* the file ends early */
    SG_TRACE_DAMAGED  /* a block is not what was written: neither it nor what follows it is read */
};

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

/* Writes the next records, at most `n`, to `out`; 0 at the end or after an error. The stream and the thread of a record
   are indices of definitions that came before it in the same sequence (0: none). A trace that is only incomplete
   is no error: see info->end. Best in batches of 256 and more. Files that must be parsed or decompressed are read ahead
   by threads from the first call on, unless they are kept. */
size_t sg_trace_read(struct sg_trace_reader *reader, struct segalloc_trace_record *out, size_t n);

/* NULL, or the line that says why reading stopped. */
const char *sg_trace_error(const struct sg_trace_reader *reader);
const struct sg_trace_info *sg_trace_info(const struct sg_trace_reader *reader);

/* Back to the first record; -ESPIPE for pipes. */
int sg_trace_rewind(struct sg_trace_reader *reader);

/* Keeps the records of the next reading, at most `bytes` of them, where reading takes longer than copying: once it has
   come to the end, later readings are from memory. Before the first record is read. */
void sg_trace_keep(struct sg_trace_reader *reader, uint64_t bytes);

/* Share of the file read, 0 to 1; negative when unknown. */
double sg_trace_progress(const struct sg_trace_reader *reader);

#endif
