/* The input of formats: bytes of a source, chunk by chunk, and the reader's account of what is wrong with them. The reader
   opens a source and chooses a format (trace_reader.c); a format reads from here and knows no other.

   For example, a format has used all but 100 bytes of a chunk of 256 KiB, where a record begins. sg_trace_more() puts the 100
   in front of the next chunk, so that the record lies in one piece. */
#ifndef SG_TRACE_INPUT_H
#define SG_TRACE_INPUT_H

#include "reader/source.h"
#include "reader/trace_reader.h"

/* A trace that is being read: its source, its format, and how far both are. */
struct sg_trace_reader {
    struct sg_source *source;
    const struct sg_trace_format *format;
    void *state; /* the format's */
    struct sg_trace_info info;  /* as far as the format has read */
    struct sg_trace_info shown; /* as far as records have been handed out */
    char error[SG_TRACE_ERROR];
    char end_room[SG_TRACE_ERROR]; /* where info.end_text is made up */
    unsigned char *data; /* not yet used bytes of the current chunk */
    size_t size;
    bool source_end;
    char *text; /* conf and command */
    struct sg_batches *batches; /* NULL: records are read when they are asked for */
    uint64_t keep_bytes;        /* of records, kept for who reads them again; 0: they are read ahead */
    bool begun;
};

/* A format: `detect` looks at the first bytes (at least 256, or all there are); `open` reads the header, from the first
   byte on; `read` is sg_trace_read(). Both put one line into reader->error when they fail. `restart` forgets what
   was read; the source is back at its first byte and `open` comes next. */
struct sg_trace_format {
    const char *name;
    bool (*detect)(const unsigned char *data, size_t size);
    int (*open)(struct sg_trace_reader *reader);
    size_t (*read)(struct sg_trace_reader *reader, struct segalloc_trace_record *out, size_t n);
    void (*close)(struct sg_trace_reader *reader);
};
extern const struct sg_trace_format sg_format_segalloc, sg_format_rmm_csv, sg_format_torch_snapshot;

/* Sets reader->error from a format and returns -EINVAL. */
int sg_trace_fail(struct sg_trace_reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends the trace as damaged at a byte of the (decompressed) file, unless it has ended already; `what` is a clause. */
void sg_trace_damaged(struct sg_trace_reader *reader, uint64_t offset, const char *what);

/* Gets more bytes: keeps the `size` unused ones (at most SG_SOURCE_HEADROOM) in front of the next chunk. False at the
   end, also when that is an error of reading, which is then in reader->error. */
bool sg_trace_more(struct sg_trace_reader *reader);

#endif
