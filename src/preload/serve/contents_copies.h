/* Parts that copies of contents share, on the host and in files: contents.c and contents_file.c use them.

   Nouns. A *batch* is copies that the driver gets by one call. A model has thousands of small blocks, and a call for each takes
   longer than its bytes do.

   How. Copies to or from registered memory are gathered, 128 at most. A driver before CUDA 12.8 has no call for batches, and one may
   refuse a batch: then each copy is a call. So it is where memory is not registered, for which the driver promises no batches.

   For example, a tag of 300 blocks is saved by one call of sg_contents_on_stream(). Its function adds a copy for each, and the
   driver has batches of 128, 128 and 44. The stream is waited for and destroyed after. */
#ifndef SG_CONTENTS_COPIES_H
#define SG_CONTENTS_COPIES_H

#include "serve/contents.h"

enum { SG_BATCH = 128 };

/* The copies of one order, on a stream of ours. */
struct sg_copies {
    const struct sg_driver *driver;
    CUstream stream;
    bool home;    /* to the device */
    bool refused; /* the driver has refused a batch */
    size_t count; /* of the batch */
    CUdeviceptr to[SG_BATCH], from[SG_BATCH];
    size_t bytes[SG_BATCH];
};

/* Adds a copy between the host and the device; `registered`: the host's part may be in a batch. All copies that are not waited for
   yet go the same way. */
CUresult sg_copies_add(struct sg_copies *copies, unsigned char *host, CUdeviceptr device, uint64_t bytes,
    bool registered);

/* Has the driver begin all copies that were added. */
CUresult sg_copies_begin(struct sg_copies *copies);

/* Waits for all copies that were added. */
CUresult sg_copies_await(struct sg_copies *copies);

/* Ends copies, of which `result` says how they went: waits for all that were added, or after an error for those that were begun. No copy is
   under way when it returns, whatever it returns, so host memory and pages may go back. */
CUresult sg_copies_end(struct sg_copies *copies, CUresult result);

/* Counts one more table in which something is kept, or one less (-1). Threads that have the fast path are to look again, since
   it tells nobody of a free. */
void sg_contents_count(int change);

/* One line a second about a long copy: `done` of `bytes` are `what`, such as "saved". */
void sg_contents_say(struct sg_contents *contents, const char *what, uint64_t done, uint64_t bytes);

/* Runs copies on a stream of ours, and waits for them. `home`: they go to the device. CUDA_ERROR_NOT_SUPPORTED: the driver lacks
   a call for it. */
typedef CUresult sg_contents_each(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    struct sg_copies *copies);
CUresult sg_contents_on_stream(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count,
    bool home, sg_contents_each *each);

#endif
