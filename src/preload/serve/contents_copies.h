/* Parts that copies of contents share, on the host and in files: contents.c and contents_file.c use them.

   For example, a tag of two pieces is saved by one call of sg_contents_on_stream(). Its function copies both on the stream that
   it is given, and the stream is waited for and destroyed after. */
#ifndef SG_CONTENTS_COPIES_H
#define SG_CONTENTS_COPIES_H

#include "serve/contents.h"

/* Counts one more table in which something is kept, or one less (-1). Threads that have the fast path are to look again, since
   it tells nobody of a free. */
void sg_contents_count(int change);

/* One line a second about a long copy: `done` of `bytes` are `what`, such as "saved". */
void sg_contents_say(struct sg_contents *contents, const char *what, uint64_t done, uint64_t bytes);

/* Runs copies on a stream of ours, and waits for them. CUDA_ERROR_NOT_SUPPORTED: the driver lacks a call for it. */
typedef CUresult sg_contents_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    CUstream stream);
CUresult sg_contents_on_stream(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    sg_contents_each *each);

#endif
