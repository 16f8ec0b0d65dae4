/* Bytes of a file or of standard input, decompressed where they are zstd, in chunks of bounded size.

   A *chunk* is up to 256 KiB. Before it there are 8 KiB of room for the unused end of the chunk before. So a reader finds a
   row or a record that lies across two chunks in one piece. Behind it 32 bytes may be read, for code that looks at words.

   Why chunks and no mapping: a trace may come from a pipe, and be longer than memory. A regular .zst file is decompressed
   by a thread of its own, up to four chunks ahead, while the reader parses.

   Example, a row of CSV of 60 bytes, 20 of them at the end of chunk 1:
     next     chunk 1, 262144 bytes; the reader has used all but the last 20
     next     chunk 2; the reader copies the 20 bytes to just before it, and parses the row from there */
#ifndef SG_SOURCE_H
#define SG_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SG_SOURCE_CHUNK = 256 << 10,
    SG_SOURCE_HEADROOM = 8 << 10, /* writable bytes before each chunk: for what was left of the chunk before */
    SG_SOURCE_PADDING = 32        /* readable bytes after each chunk */
};

struct sg_source;

/* Opens `path`, "-" for standard input. Regular .zst files are decompressed on a thread of their own. Returns 0 or a
   negative errno; -ENOTSUP: compressed, and built without libzstd. */
int sg_source_open(const char *path, struct sg_source **ret);
void sg_source_close(struct sg_source *source);

/* Gets the next chunk; it and the one before stay valid until the next call. Returns 1, 0 at the end, or a negative errno:
   -EBADMSG when the compressed data are damaged, -ENODATA when they end early (what came before is good). */
int sg_source_next(struct sg_source *source, unsigned char **ret_data, size_t *ret_size);

/* Back to the first byte. -ESPIPE for what is no regular file. */
int sg_source_rewind(struct sg_source *source);

/* After -EBADMSG and -ENODATA: the byte of the file, compressed as it is, at which that was found. */
uint64_t sg_source_damaged_at(const struct sg_source *source);

/* True if the bytes are decompressed here. */
bool sg_source_compressed(const struct sg_source *source);

/* Bytes read from the file so far, before decompression, and its size (0 when unknown): for showing progress. */
uint64_t sg_source_position(const struct sg_source *source);
uint64_t sg_source_size(const struct sg_source *source);

#endif
