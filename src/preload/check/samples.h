/* Samples of device memory on their way to the host, and what they are compared with.

   Nouns. A *sample* is some bytes of one block. A *batch* is up to eight samples that one allocation, or one free, has
   copied in the order of one stream, with an event behind them. A *lane* is what one context has for this: pinned
   memory for its batches, and two streams of its own. *fills* waits for the program's work, *reads* waits for nothing.

   Why. Nobody waits: the copies are asynchronous, the event is asked about at later calls, and then the bytes are
   compared. A batch that is still out keeps its pinned memory. Where none is left the samples are not taken, and
   counted as such.

   Two ways for a batch. One that was *sent* is compared by whoever allocates or frees next and finds it arrived. One
   that was *kept* is compared by the thread that copied it: memory for no stream may be used by any stream as soon as
   the allocation returns, so the copies have to be over before that. A wait that is given up makes the batch void. Its
   bytes may have been the next owner's by then.

   Limits. 16 contexts have a lane. 128 batches of 16 KiB, so 2 MiB of pinned memory each.

   For example, a block of 1,000 bytes serves again on stream 7. Its 1,536 filled bytes are one sample of batch 12: one
   copy and one event on stream 7. Eight allocations later the event has passed, 384 words are compared, and batch 12 is
   free again. */
#ifndef SG_CHECK_SAMPLES_H
#define SG_CHECK_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "check/marks.h"
#include "check/shadow.h"
#include "core/core.h"

enum { SG_LANES = 16, SG_BATCH_SAMPLES = 8, SG_BATCH_BYTES = 16384 };

/* The block whose allocation or free took the samples. */
struct sg_check_block {
    CUdeviceptr address;
    uint64_t bytes;
    struct sg_check_note note;
};

/* Bytes of one block, copied by one call, or by one for each row. With rows, `pitch` is from the start of a row to that of the next one, on the
   device; on the host rows follow each other.

   For example, windows 2 to 4 of a block of 8 MiB: offset 2,100,000, 512 bytes, 3 rows, pitch 1,048,448. They take
   1,536 bytes of the batch. */
struct sg_sample {
    struct sg_freed *freed; /* with a reference: the block before; of a canary, the block itself */
    bool canary;
    bool words;             /* no bytes of a block: the words of the streams (marks.h) */
    uint64_t offset;        /* in that block */
    CUdeviceptr address;    /* where it was read */
    uint32_t bytes, rows;   /* of a row, and how many rows */
    uint64_t pitch;
    uint32_t at;            /* in the batch's memory */
};

struct sg_lane;

/* The members are those of the thread that took the batch, until it is sent. Then they belong to whoever asks about it. */
struct sg_batch {
    int state; /* enum batch_state of samples.c, under SG_LOCK_CHECK */
    struct sg_lane *lane;
    bool is_void; /* the memory may have been used before the copies were made: nothing is compared */
    CUevent event;
    unsigned char *data;
    uint32_t used;
    unsigned count;
    struct sg_sample sample[SG_BATCH_SAMPLES];
    struct sg_check_block now;
};

/* Compares a batch that has arrived. Called without a lock. */
typedef void sg_compare_fn(struct sg_batch *batch);

/* The lane of a context, which is current; made at its first use, where `make`. NULL: there is none, or the driver
   refused. No capture may be active, nor begin. */
struct sg_lane *sg_lane_of(CUcontext context, bool make);
struct sg_words *sg_lane_words(struct sg_lane *lane);
struct sg_lane *sg_lane_at(unsigned index);
CUstream sg_lane_fills(const struct sg_lane *lane);
CUstream sg_lane_reads(const struct sg_lane *lane);

/* Makes the stream for fills wait for all work of the lane's context so far. False: the driver has no event over a
   context, or refuses. */
bool sg_lane_fills_after_all(struct sg_lane *lane, const struct sg_driver *driver);

/* An empty batch; NULL: all are out. */
struct sg_batch *sg_batch_begin(struct sg_lane *lane);

/* Copies rows of a block on the stream, as far as there is room. The reference to `freed` becomes the batch's. False, and the
   reference still the caller's: no room, or the driver refused. */
bool sg_batch_read(struct sg_batch *batch, const struct sg_sample *sample, CUstream stream);

/* Copies the first `count` words of the lane's streams on the stream, and `freed` with them, as sg_batch_read() does. With a
   `count` of 0 the batch only shows when the stream has come this far. */
bool sg_batch_read_words(struct sg_batch *batch, struct sg_freed *freed, unsigned count, CUstream stream);

/* The samples are all there: an event goes behind them. False: the driver refused, and the batch is empty again. */
bool sg_batch_send(struct sg_batch *batch, CUstream stream);

/* The same, for a batch that sg_batch_settle() follows: nobody else asks about it. */
bool sg_batch_keep(struct sg_batch *batch, CUstream stream);

/* Waits on the host for a batch that was kept, with the driver of the core, and compares it. False: the wait was given up after 2 s,
   and nothing of it will be compared. sg_samples_waits_are_vain(): such a batch is out still, so the next wait may last as long. */
bool sg_batch_settle(struct sg_batch *batch, const struct sg_driver *driver, sg_compare_fn *compare);
bool sg_samples_waits_are_vain(void);

/* True if all batches were out at the last look, and none has come back since: it is no use to wait for one. */
bool sg_samples_are_stuck(void);
void sg_samples_stuck(void);

/* Compares what has arrived, a few batches at a time; `all`: whatever has. */
void sg_samples_poll(const struct sg_driver *driver, bool all, sg_compare_fn *compare);

/* Waits for what is out, at most that long, and compares it. NULL: of every context. Returns how many batches are out still. */
unsigned sg_samples_finish(const struct sg_driver *driver, CUcontext context, uint64_t limit_ns, sg_compare_fn *compare);

/* The context may be about to end: the words of its streams are not read from here on. */
void sg_lane_closes(CUcontext context);

/* The context is gone, and its lane with it; what was out is lost. Returns how many batches that were. */
unsigned sg_lane_gone(CUcontext context);

/* The shadow, and the lock that guards it and the batches. */
extern struct sg_shadow sg_check_shadow __attribute__((visibility("hidden")));

#endif
