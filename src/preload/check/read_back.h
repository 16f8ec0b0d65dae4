/* Reading back: which bytes of a freed block are copied to the host, and in which batches.

   For example, 40,000 bytes of a freed block of 60,000 serve again. Samples of 512 bytes are read at 0, at a multiple of 4
   below 39,488, and at 39,488: three copies in one batch, and an event behind them. */
#ifndef SG_CHECK_READ_BACK_H
#define SG_CHECK_READ_BACK_H

#include <stdbool.h>

#include "check/samples.h"

enum { SG_READER_KEPT = 64 };

/* Samples on their way out: a batch that is being filled. `kept_all`: any stream may use the memory once this is
   over. Batches are kept then until the host has waited for them. */
struct sg_reader {
    struct sg_lane *lane;
    struct sg_batch *batch;
    CUstream stream;
    struct sg_check_block now;
    bool kept_all, gave_up;
    CUdeviceptr spared; /* SG_STAMPS bytes that are not read; 0: none */
    unsigned kept;
    struct sg_batch *keep[SG_READER_KEPT];
};

/* An empty batch. A thorough run waits for one, not for ever. False: there is none. */
bool sg_reader_begin(struct sg_reader *reader);

/* Adds a sample to the batch, or to the next one where that is full. A sample for which there is no room is left out. The
   reference to its block is the sample's own. */
void sg_reader_add(struct sg_reader *reader, struct sg_sample sample);

/* Reads a part of a freed block back. A small one is read whole, and of one that has windows the windows are. Three
   samples are read of any other: its begin, its end, and a place between that the word of the free chooses. */
void sg_reader_part(struct sg_reader *reader, const struct sg_part *part);

/* Copies the words of the streams whose marks the block needs, and sends the batch. */
void sg_reader_words(struct sg_reader *reader, struct sg_freed *freed);

/* Sends the batch, if there is one: an event goes behind its copies. */
void sg_reader_send(struct sg_reader *reader);

/* Waits for what was kept, in the order in which it was copied. The caller has left the lane. A thorough run does so in between
   too, where SG_READER_KEPT batches are out. */
void sg_reader_settle(struct sg_reader *reader);

#endif
